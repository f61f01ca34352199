"""The training model: the Qwen3.5-MoE trunk, lm_head and MTP head, named as the checkpoint names them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tools.tiny.configuration import TinyConfig
from tools.tiny.gated_delta import GatedDelta, chunked
from tools.tiny.layers import DecoderLayer, ExpertWeights, RmsNorm, linear
from tools.tiny.mtp_head import MtpHead


class Trunk(nn.Module):
    """Embedding, decoder layers, final norm."""

    def __init__(self, config: TinyConfig, rule: GatedDelta) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, kind, rule) for kind in config.layer_types)
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, tokens: Tensor, weights: list[ExpertWeights], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x = self.embed_tokens(tokens).to(dtype)
        balance = x.new_zeros((), dtype=torch.float32)
        for layer, experts in zip(self.layers, weights, strict=True):
            x, load = layer(x, experts)
            balance = balance + load / len(self.layers)
        return self.norm(x), balance


class Outputs(NamedTuple):
    """What one pass gives.

    Attributes:
        hidden: [B, T, h] the trunk's post-norm output.
        drafts: outputs of the head, one [B', T, h] a draft; empty when none were asked for.
        balance: load balancing losses of trunk and head, float32 scalars.
    """

    hidden: Tensor
    drafts: list[Tensor]
    balance: tuple[Tensor, Tensor]


class TinyModel(nn.Module):
    """Trunk, lm_head and MTP head."""

    def __init__(self, config: TinyConfig, rule: GatedDelta = chunked) -> None:
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.language_model = Trunk(config, rule)
        self.lm_head = linear(config.hidden_size, config.vocab_size)
        self.mtp = MtpHead(config)

    @property
    def trunk(self) -> Trunk:
        """The text model."""
        return self.model.language_model

    def forward(
        self, tokens: Tensor, depth: int, weights: list[ExpertWeights] | None = None, rows: int | None = None
    ) -> Outputs:
        """Runs the trunk on all tokens but the last, and the head on the first `rows` sequences.

        Args:
            tokens: int64 [B, T + 1]; the last one is only embedded for the head.
            depth: drafts to chain; 0 leaves the head out.
            weights: experts' weights of each trunk layer (a quantised copy, say); None takes the stored ones.
            rows: sequences the head runs on; None means all.
        """
        weights = weights or [layer.mlp.experts.weights for layer in self.trunk.layers]
        dtype = torch.bfloat16 if torch.is_autocast_enabled(tokens.device.type) else torch.float32
        hidden, balance = self.trunk(tokens[:, :-1], weights, dtype)
        if depth == 0:
            return Outputs(hidden, [], (balance, balance))
        embedded = self.trunk.embed_tokens(tokens[:rows, 1:]).to(dtype)
        drafts, head_balance = self.mtp(
            embedded, hidden[:rows], depth, self.mtp.layers[0].mlp.experts.weights
        )
        return Outputs(hidden, drafts, (balance, head_balance))

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Random weights: normals scaled by fan-in, residual outputs smaller, decays spread over heads."""
        generator = torch.Generator().manual_seed(seed)
        residual = (2 * self.config.num_hidden_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if name.endswith("A_log"):
                parameter.copy_(torch.empty_like(parameter).uniform_(1.0, 16.0, generator=generator).log())
            elif name.endswith("dt_bias"):
                step = torch.empty_like(parameter).uniform_(-6.9, -2.3, generator=generator).exp()
                parameter.copy_(step.expm1().log())
            elif parameter.dim() >= 2:
                fan_in = parameter.shape[-1] if "embed" not in name else 1 / 0.02**2
                scale = (
                    residual
                    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj", "down_proj.weight"))
                    else 1.0
                )
                noise = torch.empty_like(parameter).normal_(0.0, 1.0, generator=generator)
                parameter.copy_(noise * fan_in**-0.5 * scale)
