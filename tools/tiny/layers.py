"""Layers of Qwen3.5-MoE in plain torch, named as the checkpoint names them.

Semantics follow `transformers`' Qwen3_5Moe (tests compare the logits). Experts are computed densely with the
routing weights as a mask: with 16 small experts that is one large matrix product, which a GPU likes better
than a gather.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tiny.configuration import TinyConfig
from tools.tiny.gated_delta import GatedDelta

ExpertWeights = tuple[Tensor, Tensor]
"""gate_up [E, 2I, h] and down [E, h, I]: what the layer multiplies with, which may be a quantised copy."""


class RmsNorm(nn.Module):
    """x / rms(x) * (1 + weight), in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * (1.0 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    """rms_norm(x) * weight * silu(gate): the norm after the delta rule, whose weight is plain."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * self.weight * functional.silu(gate.float())).to(gate.dtype)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A projection without bias, as all of this family are."""
    return nn.Linear(inputs, outputs, bias=False)


class GatedDeltaNet(nn.Module):
    """Linear attention: projections, causal convolution, gated delta rule, gated norm."""

    def __init__(self, config: TinyConfig, rule: GatedDelta) -> None:
        super().__init__()
        self.config, self.rule = config, rule
        channels = 2 * config.key_dim + config.value_dim
        heads = config.linear_num_value_heads
        self.in_proj_qkv = linear(config.hidden_size, channels)
        self.in_proj_z = linear(config.hidden_size, config.value_dim)
        self.in_proj_b = linear(config.hidden_size, heads)
        self.in_proj_a = linear(config.hidden_size, heads)
        self.conv1d = nn.Conv1d(
            channels, channels, config.linear_conv_kernel_dim, groups=channels, bias=False
        )
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.norm = GatedNorm(config.linear_value_head_dim, config.rms_norm_eps)
        self.out_proj = linear(config.value_dim, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        config = self.config
        batch, length, _ = x.shape
        query, key, value = self._convolved(self.in_proj_qkv(x)).split(
            [config.key_dim, config.key_dim, config.value_dim], dim=-1
        )
        groups = config.linear_num_value_heads // config.linear_num_key_heads
        shape = (batch, length, config.linear_num_key_heads, config.linear_key_head_dim)
        query = query.reshape(shape).repeat_interleave(groups, dim=2)
        key = key.reshape(shape).repeat_interleave(groups, dim=2)
        value = value.reshape(batch, length, -1, config.linear_value_head_dim)
        beta = self.in_proj_b(x).float().sigmoid()
        decay = -self.A_log.exp() * functional.softplus(self.in_proj_a(x).float() + self.dt_bias)
        gate = self.in_proj_z(x).reshape(value.shape)
        mixed = self.norm(self.rule(query, key, value, decay, beta), gate)
        return self.out_proj(mixed.reshape(batch, length, -1))

    def _convolved(self, x: Tensor) -> Tensor:
        # Shifted multiplies instead of a depthwise convolution: they fuse into one pass.
        taps = self.conv1d.weight.squeeze(1).to(x.dtype)
        width = taps.shape[1]
        padded = functional.pad(x, (0, 0, width - 1, 0))
        total = sum(padded[:, tap : tap + x.shape[1]] * taps[:, tap] for tap in range(width))
        return functional.silu(total)


class Attention(nn.Module):
    """Gated full attention with grouped keys and values, split in two so that the head can chain."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.config = config
        width = config.num_attention_heads * config.head_dim
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = linear(config.hidden_size, 2 * width)
        self.k_proj = linear(config.hidden_size, key_width)
        self.v_proj = linear(config.hidden_size, key_width)
        self.o_proj = linear(width, config.hidden_size)
        self.q_norm = RmsNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RmsNorm(config.head_dim, config.rms_norm_eps)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rotated queries and (repeated) keys, values [B, heads, T, D], and the gate [B, T, heads * D]."""
        config = self.config
        batch, length, _ = x.shape
        query, gate = self.q_proj(x).view(batch, length, -1, 2 * config.head_dim).chunk(2, dim=-1)
        key = self.k_norm(self.k_proj(x).view(batch, length, -1, config.head_dim))
        value = self.v_proj(x).view(batch, length, -1, config.head_dim)
        cosine, sine = rotary_tables(config, length, x.device)
        query = rotate(self.q_norm(query), cosine, sine)
        key = rotate(key, cosine, sine)
        groups = config.num_attention_heads // config.num_key_value_heads
        key, value = (part.repeat_interleave(groups, dim=2) for part in (key, value))
        query, key, value = (part.transpose(1, 2).to(x.dtype) for part in (query, key, value))
        return query, key, value, gate.reshape(batch, length, -1)

    def finish(self, attended: Tensor, gate: Tensor) -> Tensor:
        """Output gate and projection of [B, heads, T, D]."""
        batch, _, length, _ = attended.shape
        return self.o_proj(attended.transpose(1, 2).reshape(batch, length, -1) * gate.sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, gate = self.project(x)
        return self.finish(functional.scaled_dot_product_attention(query, key, value, is_causal=True), gate)


def rotary_tables(config: TinyConfig, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, rotary_dim / 2] of positions 0 .. T - 1."""
    half = torch.arange(0, config.rotary_dim, 2, device=device, dtype=torch.float32) / config.rotary_dim
    angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * config.rope_theta**-half
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates the leading dimensions of [B, T, heads, D], first half against second half."""
    half = cosine.shape[-1]
    first, second, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    cosine, sine = cosine[:, None], sine[:, None]
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return torch.cat([*(part.to(x.dtype) for part in turned), rest], dim=-1)


class Experts(nn.Module):
    """The routed experts' weights, stacked as `transformers` stacks them."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        count, inner, width = config.num_experts, config.moe_intermediate_size, config.hidden_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))

    @property
    def weights(self) -> ExpertWeights:
        """The stored weights, as a layer takes them."""
        return self.gate_up_proj, self.down_proj


class SharedExpert(nn.Module):
    """The gated MLP that every token passes."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.shared_expert_intermediate_size)
        self.up_proj = linear(config.hidden_size, config.shared_expert_intermediate_size)
        self.down_proj = linear(config.shared_expert_intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class MoeBlock(nn.Module):
    """Router, routed experts and the shared expert."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.config = config
        self.gate = linear(config.hidden_size, config.num_experts)
        self.experts = Experts(config)
        self.shared_expert = SharedExpert(config)
        self.shared_expert_gate = linear(config.hidden_size, 1)

    def forward(self, x: Tensor, weights: ExpertWeights) -> tuple[Tensor, Tensor]:
        """The block's output, and its load balancing loss (1 when the load is even)."""
        routed, balance = self.route(x)
        active = (self.activate(x, weights[0]) * routed.unsqueeze(-1)).to(x.dtype).flatten(-2)
        output = functional.linear(active, weights[1].transpose(0, 1).reshape(x.shape[-1], -1))
        shared = self.shared_expert_gate(x).float().sigmoid().to(x.dtype) * self.shared_expert(x)
        return output + shared, balance

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [B, T, E] float32, zero for experts that a token does not visit, and the load balancing
        loss.
        """
        config = self.config
        probabilities = self.gate(x).float().softmax(-1)
        experts = torch.arange(config.num_experts, device=x.device)
        chosen = torch.zeros_like(probabilities, dtype=torch.bool)
        for _ in range(config.num_experts_per_tok):
            best = probabilities.masked_fill(chosen, -1.0).argmax(-1, keepdim=True)
            chosen = chosen | (experts == best)
        routed = probabilities * chosen
        load = chosen.float().mean((0, 1)) / config.num_experts_per_tok
        balance = config.num_experts * (load * probabilities.mean((0, 1))).sum()
        return routed / routed.sum(-1, keepdim=True), balance

    def activate(self, x: Tensor, gate_up: Tensor) -> Tensor:
        """What enters the down projection of every expert: [B, T, E, I]."""
        inner = self.config.moe_intermediate_size
        gated = functional.linear(x, gate_up[:, :inner].reshape(-1, x.shape[-1]))
        raised = functional.linear(x, gate_up[:, inner:].reshape(-1, x.shape[-1]))
        return (functional.silu(gated) * raised).unflatten(-1, (-1, inner))


class DecoderLayer(nn.Module):
    """Norm, mixer, residual, norm, experts, residual."""

    def __init__(self, config: TinyConfig, kind: str, rule: GatedDelta) -> None:
        super().__init__()
        if kind == "full_attention":
            self.self_attn = Attention(config)
        else:
            self.linear_attn = GatedDeltaNet(config, rule)
        self.kind = kind
        self.mlp = MoeBlock(config)
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, weights: ExpertWeights) -> tuple[Tensor, Tensor]:
        mixer = self.self_attn if self.kind == "full_attention" else self.linear_attn
        return self.feed(x + mixer(self.input_layernorm(x)), weights)

    def feed(self, x: Tensor, weights: ExpertWeights) -> tuple[Tensor, Tensor]:
        """The second half of the layer: norm, experts, residual."""
        output, balance = self.mlp(self.post_attention_layernorm(x), weights)
        return x + output, balance
