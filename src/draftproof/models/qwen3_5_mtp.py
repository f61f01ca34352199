"""The multi-token-prediction head of Qwen3.5 and Qwen3-Next.

Slot p takes the embedding of token p + 1 and the target's hidden state of position p *after the target's
final norm*, and predicts token p + 2. In a chain the head's own normed output stands in for the hidden state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.layers.decoder import AttentionLayer
from draftproof.layers.linear import Linear
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.window import AttentionRows, KeyValueCache
from draftproof.models.qwen3_5 import Qwen35Model


@dataclass(frozen=True)
class MtpHead:
    """fc over [normed embedding, normed hidden], full-attention layers, norm; embedding and lm_head are the
    target's.

    Attributes:
        target: whose embedding, lm_head and rotary tables are used (the same storage, not copies).
        embedding_norm: `pre_fc_norm_embedding`.
        hidden_norm: `pre_fc_norm_hidden`.
        fc: 2 * hidden to hidden, embedding first.
        layers: one in every released model.
        norm: its output feeds lm_head and the next slot of a chain.
    """

    target: Qwen35Model
    embedding_norm: OffsetRmsNorm
    hidden_norm: OffsetRmsNorm
    fc: Linear
    layers: tuple[AttentionLayer, ...]
    norm: OffsetRmsNorm

    def forward(
        self, next_token_ids: Tensor, hidden: Tensor, rows: AttentionRows, caches: tuple[KeyValueCache, ...]
    ) -> Tensor:
        """Run slots of the head.

        Args:
            next_token_ids: [batch, rows] the token after each slot's position.
            hidden: [batch, rows, hidden] of each slot's position, after the target's final norm (or the
                head's).
            rows: positions and pages of the slots.
            caches: the head's own keys and values, one per layer.

        Returns:
            [batch, rows, hidden] after the head's norm.
        """
        state = self._enter(next_token_ids, hidden)
        angles = self.target.rotary.of(rows)
        for layer, cache in zip(self.layers, caches, strict=True):
            state = layer(state, angles, cache, rows)
        return self.norm(state)

    def last(
        self, next_token_ids: Tensor, hidden: Tensor, rows: AttentionRows, caches: tuple[KeyValueCache, ...]
    ) -> Tensor:
        """Run slots of the head as `forward` does, for the output of each sequence's last real slot.

        The slots before it leave their keys and values; what nobody reads is not computed.

        Returns:
            [batch, 1, hidden] after the head's norm.
        """
        state = self._enter(next_token_ids, hidden)
        angles = self.target.rotary.of(rows)
        for layer, cache in zip(self.layers[:-1], caches, strict=False):
            state = layer(state, angles, cache, rows)
        return self.norm(self.layers[-1].last(state, angles, caches[-1], rows))

    def _enter(self, next_token_ids: Tensor, hidden: Tensor) -> Tensor:
        embedded = self.embedding_norm(self.target.embed(next_token_ids))
        return self.fc(torch.cat((embedded, self.hidden_norm(hidden)), -1))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] after the head's norm to [..., vocab] float32, through the target's lm_head."""
        return self.target.logits(hidden)
