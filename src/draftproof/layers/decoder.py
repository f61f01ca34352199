"""One decoder layer: norm, mixer, residual, norm, mlp, residual."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftproof.kernels.gated_delta_step.reference import RecurrentState, WindowRows
from draftproof.layers.attention import Attention
from draftproof.layers.gated_delta_net import GatedDeltaNet
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import MixtureOfExperts
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.layers.window import AttentionRows, KeyValueCache


@dataclass(frozen=True)
class AttentionLayer:
    """Decoder layer whose mixer is full attention; the MTP head's layer is one too."""

    input_norm: OffsetRmsNorm
    attention: Attention
    post_attention_norm: OffsetRmsNorm
    mlp: GatedMlp | MixtureOfExperts | PackedMixture

    def __call__(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache, rows: AttentionRows
    ) -> Tensor:
        """[batch, rows, hidden] to the same."""
        hidden = self.attention(self.input_norm(hidden), angles, cache, rows).add_(hidden)
        return self.mlp(self.post_attention_norm(hidden)).add_(hidden)

    def last(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache, rows: AttentionRows
    ) -> Tensor:
        """[batch, rows, hidden] to each sequence's last real row, [batch, 1, hidden].

        The other rows leave their keys and values and cost no more than that.
        """
        mixed = self.attention.last(self.input_norm(hidden), angles, cache, rows)
        hidden = mixed.add_(rows.pick_last(hidden))
        return self.mlp(self.post_attention_norm(hidden)).add_(hidden)


@dataclass(frozen=True)
class RecurrentLayer:
    """Decoder layer whose mixer is a Gated DeltaNet."""

    input_norm: OffsetRmsNorm
    mixer: GatedDeltaNet
    post_attention_norm: OffsetRmsNorm
    mlp: GatedMlp | MixtureOfExperts | PackedMixture

    def __call__(self, hidden: Tensor, state: RecurrentState, rows: WindowRows) -> Tensor:
        """[batch, rows, hidden] to the same."""
        hidden = self.mixer(self.input_norm(hidden), state, rows).add_(hidden)
        return self.mlp(self.post_attention_norm(hidden)).add_(hidden)


DecoderLayer = AttentionLayer | RecurrentLayer
