"""The MTP head: one gated attention layer over (embedding of the next token, hidden state)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny.configuration import TinyConfig
from tools.tiny.gated_delta import chunked
from tools.tiny.layers import DecoderLayer, ExpertWeights, RmsNorm, linear


class MtpHead(nn.Module):
    """The MTP head, run for whole sequences and for chained drafts at every position at once."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.fc = linear(2 * config.hidden_size, config.hidden_size)
        self.pre_fc_norm_embedding = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.pre_fc_norm_hidden = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList([DecoderLayer(config, "full_attention", chunked)])
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, embedded: Tensor, hidden: Tensor, depth: int, weights: ExpertWeights
    ) -> tuple[list[Tensor], Tensor]:
        """Post-norm outputs of drafts 1 .. depth at every slot.

        Slot j embeds token j + 1; draft d at slot j belongs to the chain that started at slot j - d + 1, so
        it sees the keys of real hidden states up to there, and its own chain's keys after it. Its output
        predicts token j + 2.

        Args:
            embedded: [B, T, h] embeddings of tokens 1 .. T.
            hidden: [B, T, h] the trunk's post-norm outputs at slots 0 .. T - 1.
            depth: drafts in a chain.
            weights: the routed experts'.

        Returns:
            depth tensors [B, T, h], and the load balancing loss. The first d - 1 slots of draft d have no
            chain.
        """
        layer = self.layers[0]
        tokens = self.pre_fc_norm_embedding(embedded)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        outputs: list[Tensor] = []
        balance = hidden.new_zeros((), dtype=torch.float32)
        for _ in range(depth):
            x, (query, key, value, gate) = self.enter(tokens, hidden)
            keys.append(key)
            values.append(value)
            x = x + layer.self_attn.finish(_attend_along_chains(query, keys, values), gate)
            x, load = layer.feed(x, weights)
            balance = balance + load / depth
            outputs.append(self.norm(x))
            # The next draft at slot j continues this one at slot j - 1.
            hidden = functional.pad(outputs[-1], (0, 0, 1, 0))[:, :-1]
        return outputs, balance

    def enter(self, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The layer's input, and its projections for attention, from normed embeddings and hidden states."""
        x = self.fc(torch.cat([tokens, self.pre_fc_norm_hidden(hidden)], dim=-1))
        layer = self.layers[0]
        return x, layer.self_attn.project(layer.input_layernorm(x))


def _attend_along_chains(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    if len(keys) == 1:
        return functional.scaled_dot_product_attention(query, keys[0], values[0], is_causal=True)
    mask = chain_mask(query.shape[2], len(keys), query.device)
    return functional.scaled_dot_product_attention(
        query, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=mask
    )


def chain_mask(length: int, depth: int, device: torch.device) -> Tensor:
    """What draft number `depth` may see: bool [T, depth * T] over the keys of drafts 1 .. depth."""
    slot = torch.arange(length, device=device)
    behind = slot[:, None] - slot[None, :]
    # Slots without a chain see their own slot, so that no row is empty.
    real = behind >= depth - 1
    own = [behind == depth - draft for draft in range(2, depth + 1)]
    return torch.cat([real, *own], dim=1)
