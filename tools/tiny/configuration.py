"""The shape of the embedded checkpoint, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TinyConfig:
    """Sizes of a Qwen3.5-MoE model with one MTP layer; names follow the fields of its config.json."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 12
    full_attention_interval: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    partial_rotary_factor: float = 0.25
    rope_theta: float = 10_000_000.0
    mrope_section: tuple[int, int, int] = (3, 3, 2)
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 80
    shared_expert_intermediate_size: int = 80
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    @property
    def layer_types(self) -> tuple[str, ...]:
        """What each trunk layer's mixer is, as config.json spells it."""
        return tuple(
            "linear_attention" if (index + 1) % self.full_attention_interval else "full_attention"
            for index in range(self.num_hidden_layers)
        )

    @property
    def rotary_dim(self) -> int:
        """Leading dimensions of each attention head that rotate."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def key_dim(self) -> int:
        """Width of all keys (and of all queries) of a Gated DeltaNet layer."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        """Width of all values of a Gated DeltaNet layer."""
        return self.linear_num_value_heads * self.linear_value_head_dim


TOY = TinyConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    partial_rotary_factor=0.5,
    mrope_section=(2, 1, 1),
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    num_experts=4,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    max_position_embeddings=256,
)
"""Small enough for a test; every ratio that matters differs from one."""
