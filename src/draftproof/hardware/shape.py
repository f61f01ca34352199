"""What of a model decides bytes and divisions: how many layers of each kind, and their head counts."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    GatedDeltaNetSpec,
    LayerSpec,
    ModelSpec,
    MoeSpec,
)


@dataclass(frozen=True)
class Shape:
    """A model in numbers.

    Attributes:
        hidden: width of the residual stream.
        vocabulary: rows of the output head.
        layers: layers of the trunk.
        attention_layers: of them with full attention.
        recurrent_layers: of them with Gated DeltaNet.
        head_layers: layers of the MTP head, all with full attention; 0 without a head.
        attention: the full attention; None when there is none.
        recurrent: the Gated DeltaNet; None when there is none.
        experts: the routed experts; None for a dense model.
        dense_size: intermediate size of dense MLPs; 0 when all layers have experts.
    """

    hidden: int
    vocabulary: int
    layers: int
    attention_layers: int
    recurrent_layers: int
    head_layers: int
    attention: AttentionSpec | None
    recurrent: GatedDeltaNetSpec | None
    experts: MoeSpec | None
    dense_size: int

    @property
    def key_value_heads(self) -> int:
        """Key/value heads; 1 without attention."""
        return self.attention.num_key_value_heads if self.attention else 1


def shape_of(spec: ModelSpec) -> Shape:
    """The numbers of a model; all layers of one kind are alike in every release."""
    layers: tuple[LayerSpec, ...] = (*spec.layers, *((spec.mtp.layer,) if spec.mtp else ()))
    attention = [layer.mixer for layer in layers if isinstance(layer.mixer, AttentionSpec)]
    recurrent = [layer.mixer for layer in layers if isinstance(layer.mixer, GatedDeltaNetSpec)]
    experts = [layer.mlp for layer in layers if isinstance(layer.mlp, MoeSpec)]
    dense = [layer.mlp for layer in layers if isinstance(layer.mlp, DenseMlpSpec)]
    return Shape(
        hidden=spec.hidden_size,
        vocabulary=spec.vocab_size,
        layers=len(spec.layers),
        attention_layers=sum(isinstance(layer.mixer, AttentionSpec) for layer in spec.layers),
        recurrent_layers=len(recurrent),
        head_layers=spec.mtp.num_layers if spec.mtp else 0,
        attention=attention[0] if attention else None,
        recurrent=recurrent[0] if recurrent else None,
        experts=experts[0] if experts else None,
        dense_size=dense[0].intermediate_size if dense else 0,
    )
