"""The target: Qwen3.5 and Qwen3-Next text models, dense and mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import ModelSpec
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.layers.decoder import AttentionLayer, DecoderLayer
from draftproof.layers.linear import Linear
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.rotary import RotaryEmbedding
from draftproof.layers.window import KeyValueCache, Window


@dataclass(frozen=True)
class Qwen35Model:
    """Trunk, embedding and language model head.

    Attributes:
        spec: sizes.
        embedding: [vocab, hidden].
        layers: the trunk.
        final_norm: its output is what the head and lm_head read.
        lm_head: hidden to vocabulary; shares the embedding's storage when tied.
        rotary: tables shared with the MTP head.
    """

    spec: ModelSpec
    embedding: Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: OffsetRmsNorm
    lm_head: Linear
    rotary: RotaryEmbedding

    def embed(self, token_ids: Tensor) -> Tensor:
        """[batch, rows] ids to [batch, rows, hidden]."""
        return F.embedding(token_ids, self.embedding)

    def forward(self, token_ids: Tensor, window: Window) -> Tensor:
        """Run the trunk over a window.

        Args:
            token_ids: [batch, rows] int64.
            window: geometry and state; state moves as the window says.

        Returns:
            [batch, rows, hidden] after the final norm.
        """
        hidden = self.embed(token_ids)
        angles = self.rotary.of(window.attention)
        for layer, state in zip(self.layers, window.trunk, strict=True):
            if isinstance(layer, AttentionLayer):
                assert isinstance(state, KeyValueCache)
                hidden = layer(hidden, angles, state, window.attention)
            else:
                assert isinstance(state, RecurrentState)
                hidden = layer(hidden, state, window.rows)
        return self.final_norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] after the final norm to [..., vocab] float32."""
        return self.lm_head(hidden).float()
