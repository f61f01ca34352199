"""What a device step reads of a loaded model: packed matrices and the numbers beside them, layer by layer.

Nothing is copied: the modules of `models` keep the same storage for prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.device.buffers import ActivationWidths
from draftproof.errors import UnsupportedRequest
from draftproof.kernels.decode_attention.parameters import AttentionParameters
from draftproof.kernels.experts_step.operands import SharedExpert
from draftproof.kernels.gated_delta_decode.state import ProjectedColumns
from draftproof.kernels.gated_delta_step.reference import GatedDeltaParameters
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.packed_weights.packing import pack_dense
from draftproof.layers.attention import Attention
from draftproof.layers.decoder import AttentionLayer, DecoderLayer
from draftproof.layers.gated_delta_net import GatedDeltaNet
from draftproof.layers.linear import Linear, PackedLinear, ParallelLinear, TiedLinear
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import MixtureOfExperts
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.layers.rotary import RotaryEmbedding
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.models.qwen3_5_mtp import MtpHead


@dataclass(frozen=True)
class Projections:
    """Matrices of one input whose outputs lie side by side; one where all of them are stored alike, or one
    and another behind it."""

    matrices: tuple[PackedMatrix, ...]

    @property
    def width(self) -> int:
        """Of all outputs."""
        return sum(matrix.outputs for matrix in self.matrices)


@dataclass(frozen=True)
class AttentionMixer:
    """Full attention between its two projections."""

    norm: NormScale
    projections: Projections
    parameters: AttentionParameters
    output: PackedMatrix

    @property
    def width(self) -> int:
        """Of its output before the output projection."""
        return self.parameters.heads * self.parameters.head_dim


@dataclass(frozen=True)
class RecurrentMixer:
    """A Gated DeltaNet between its two projections."""

    norm: NormScale
    projections: Projections
    columns: ProjectedColumns
    parameters: GatedDeltaParameters
    output: PackedMatrix
    width: int


@dataclass(frozen=True)
class DenseMlp:
    """Gated MLP; `gate_up` is paired."""

    norm: NormScale
    gate_up: PackedMatrix
    down: PackedMatrix

    @property
    def width(self) -> int:
        """Between its two matrices."""
        return self.gate_up.rows // 2


@dataclass(frozen=True)
class MixtureMlp:
    """Mixture of experts.

    Attributes:
        norm: in front of it.
        spec: expert count and choice.
        router: one row for each expert, and one for the shared expert's gate.
        experts: the routed ones.
        shared: the one of every row; None without.
    """

    norm: NormScale
    spec: MoeSpec
    router: PackedMatrix
    experts: PackedExperts
    shared: SharedExpert | None


@dataclass(frozen=True)
class DeviceLayer:
    """One decoder layer."""

    mixer: AttentionMixer | RecurrentMixer
    mlp: DenseMlp | MixtureMlp


@dataclass(frozen=True)
class DraftVocabulary:
    """What the head chooses drafts from.

    Attributes:
        matrix: rows of lm_head.
        token_ids: [rows] int32 ascending, the token of each row; None when row i is token i.
    """

    matrix: PackedMatrix
    token_ids: Tensor | None = None


@dataclass(frozen=True)
class DeviceHead:
    """The MTP head; embedding and rotary tables are the target's.

    Attributes:
        embedding_norm: of the next token's embedding.
        hidden_norm: of the hidden state.
        entry: fc, [hidden, 2 * hidden].
        layer: its one layer.
        norm: its output is what drafts are chosen from, and the hidden state of the next row of a chain.
        drafts: what they are chosen among.
    """

    embedding_norm: NormScale
    hidden_norm: NormScale
    entry: PackedMatrix
    layer: DeviceLayer
    norm: NormScale
    drafts: DraftVocabulary


@dataclass(frozen=True)
class DeviceModel:
    """The target, and its head if drafts are wanted.

    Attributes:
        embedding: [vocab, hidden].
        layers: the trunk.
        norm: the final norm.
        lm_head: hidden to vocabulary.
        head: None without speculation.
    """

    embedding: Tensor
    layers: tuple[DeviceLayer, ...]
    norm: NormScale
    lm_head: PackedMatrix
    head: DeviceHead | None

    @property
    def widths(self) -> ActivationWidths:
        """What the buffers of a step must hold."""
        layers = [*self.layers, *([self.head.layer] if self.head else [])]
        mlps = [layer.mlp for layer in layers]
        return ActivationWidths(
            hidden=self.embedding.shape[1],
            projected=max(layer.mixer.projections.width for layer in layers),
            mixed=max(layer.mixer.width for layer in layers),
            activated=max((mlp.width for mlp in mlps if isinstance(mlp, DenseMlp)), default=0),
            vocabulary=self.lm_head.rows,
        )


def device_model(
    target: Qwen35Model, head: MtpHead | None, drafts: DraftVocabulary | None = None
) -> DeviceModel:
    """The parts of a loaded model.

    Args:
        target: with packed weights.
        head: its MTP head; None without speculation.
        drafts: a draft head of chosen tokens; None for the whole lm_head.

    Raises:
        UnsupportedRequest: a weight is not packed, or the head has more than one layer.
    """
    lm_head = _matrix(target.lm_head, "lm_head")
    layers = tuple(_layer(layer, target.rotary) for layer in target.layers)
    parts = None if head is None else _head(head, target.rotary, drafts or DraftVocabulary(lm_head))
    return DeviceModel(target.embedding, layers, norm_scale(target.final_norm), lm_head, parts)


def norm_scale(norm: OffsetRmsNorm) -> NormScale:
    """A norm's weight and epsilon, without the square root of the width that the layer folds in."""
    width = norm.scale.shape[0]
    return NormScale(norm.scale / width**0.5, float(norm.root_epsilon) ** 2 / width)


def _head(head: MtpHead, rotary: RotaryEmbedding, drafts: DraftVocabulary) -> DeviceHead:
    if len(head.layers) != 1:
        raise UnsupportedRequest(
            f"an MTP head of {len(head.layers)} layers cannot draft on this device",
            "Use --drafter none, or --device cpu.",
        )
    return DeviceHead(
        embedding_norm=norm_scale(head.embedding_norm),
        hidden_norm=norm_scale(head.hidden_norm),
        entry=_matrix(head.fc, "mtp.fc"),
        layer=_layer(head.layers[0], rotary),
        norm=norm_scale(head.norm),
        drafts=drafts,
    )


def _layer(layer: DecoderLayer, rotary: RotaryEmbedding) -> DeviceLayer:
    norm = norm_scale(layer.input_norm)
    mixer: AttentionMixer | RecurrentMixer
    if isinstance(layer, AttentionLayer):
        mixer = _attention(layer.attention, norm, rotary)
    else:
        mixer = _recurrent(layer.mixer, norm)
    return DeviceLayer(mixer, _mlp(layer.mlp, norm_scale(layer.post_attention_norm)))


def _attention(attention: Attention, norm: NormScale, rotary: RotaryEmbedding) -> AttentionMixer:
    spec = attention.spec
    parameters = AttentionParameters(
        heads=spec.num_heads,
        key_value_heads=spec.num_key_value_heads,
        head_dim=spec.head_dim,
        gated=spec.gated,
        query_norm=norm_scale(attention.query_norm),
        key_norm=norm_scale(attention.key_norm),
        cos=rotary.cos,
        sin=rotary.sin,
    )
    return AttentionMixer(
        norm,
        _projections(attention.projections, "attention projections"),
        parameters,
        _matrix(attention.output, "o_proj"),
    )


def _recurrent(mixer: GatedDeltaNet, norm: NormScale) -> RecurrentMixer:
    # A step's kernels convolve in float32.
    parameters = replace(mixer.parameters, convolution=mixer.parameters.convolution.float().contiguous())
    return RecurrentMixer(
        norm=norm,
        projections=_projections(mixer.projections, "Gated DeltaNet projections"),
        columns=ProjectedColumns.side_by_side(mixer.spec),
        parameters=parameters,
        output=_matrix(mixer.output, "out_proj"),
        width=mixer.spec.value_dim,
    )


def _mlp(mlp: GatedMlp | MixtureOfExperts | PackedMixture, norm: NormScale) -> DenseMlp | MixtureMlp:
    if isinstance(mlp, GatedMlp):
        return DenseMlp(norm, _matrix(mlp.gate_up, "gate_up_proj"), _matrix(mlp.down, "down_proj"))
    if isinstance(mlp, MixtureOfExperts):
        raise _not_packed("a mixture of experts")
    shared = None
    if mlp.shared is not None:
        shared = SharedExpert(
            _matrix(mlp.shared.gate_up, "shared gate_up_proj"),
            _matrix(mlp.shared.down, "shared down_proj"),
        )
    return MixtureMlp(norm, mlp.spec, mlp.router.matrix, mlp.experts, shared)


def _projections(linear: Linear, name: str) -> Projections:
    members = linear.members if isinstance(linear, ParallelLinear) else (linear,)
    *others, last = (_matrix(member, name) for member in members)
    if len(others) == 1:
        return Projections((replace(others[0], behind=last),))
    return Projections((*others, last))


def _matrix(linear: Linear, name: str) -> PackedMatrix:
    if isinstance(linear, PackedLinear):
        return linear.matrix
    if isinstance(linear, TiedLinear):
        # The embedding is read by rows, lm_head in tiles: two orders, hence two copies.
        return pack_dense(linear.embedding)
    raise _not_packed(name)


def _not_packed(name: str) -> UnsupportedRequest:
    return UnsupportedRequest(
        f"{name} is not packed as a device step reads it", "Load the checkpoint with packed blocks."
    )
