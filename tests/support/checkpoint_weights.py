"""Random logical weights, and how each family lays them out on disk."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor

from draftproof.architecture.spec import ExpertLayout
from tests.support.checkpoint_options import CheckpointOptions, Family, Sizes

LINEAR_GAIN = 1.2
NORM_NOISE = 0.1


def logical_tensors(options: CheckpointOptions, maker: Maker | None = None) -> dict[str, Tensor]:
    """Float32 weights under names that do not depend on layout or precision.

    `embed_tokens.weight`, `layers.N...`, `norm.weight`, `lm_head.weight` (untied), `mtp...`, `visual...`;
    experts fused, GDN projections as in Qwen3.5. A tensor depends on the seed, its name and its shape only.
    """
    sizes, make = options.sizes, maker or Maker(options.seed)
    tensors = {"embed_tokens.weight": make.normal("embed_tokens.weight", (sizes.vocab, sizes.hidden), 0.2)}
    for index, layer_type in enumerate(sizes.layer_types):
        tensors |= _layer(make, f"layers.{index}.", layer_type, options)
    tensors["norm.weight"] = make.norm("norm.weight", sizes.hidden)
    if not options.tied:
        tensors["lm_head.weight"] = make.normal("lm_head.weight", (sizes.vocab, sizes.hidden), 0.3)
    if options.mtp:
        tensors |= _mtp(make, options)
    if options.has_vision:
        tensors |= _vision(make, sizes)
    return tensors


def disk_tensors(options: CheckpointOptions, maker: Maker | None = None) -> dict[str, Tensor]:
    """The logical weights, float32, under their names on disk and in the family's layout, unquantized."""
    return {
        disk_name: part
        for name, tensor in _layout_of_family(options, logical_tensors(options, maker))
        for disk_name, part in _split_experts(name, tensor, options)
    }


def disk_shapes(options: CheckpointOptions) -> dict[str, tuple[int, ...]]:
    """Names and shapes of `disk_tensors`, for sizes whose values would fit nowhere."""
    return {name: tuple(tensor.shape) for name, tensor in disk_tensors(options, ShapeMaker()).items()}


def fuse_qkvz(qkv: Tensor, z: Tensor, sizes: Sizes) -> Tensor:
    """Qwen3-Next's `in_proj_qkvz` [2 * (key_dim + value_dim), hidden]: q, k, v, z of a key head together."""
    key_heads, key_dim = sizes.linear_key_heads, sizes.linear_key_dim
    query, key, value = torch.split(qkv, [key_dim, key_dim, sizes.linear_value_dim])
    parts = [part.reshape(key_heads, -1, sizes.hidden) for part in (query, key, value, z)]
    return torch.cat(parts, dim=1).reshape(-1, sizes.hidden)


def fuse_ba(b: Tensor, a: Tensor, sizes: Sizes) -> Tensor:
    """Qwen3-Next's `in_proj_ba` [2 * value_heads, hidden]: b, a of each key head together."""
    parts = [part.reshape(sizes.linear_key_heads, -1, sizes.hidden) for part in (b, a)]
    return torch.cat(parts, dim=1).reshape(-1, sizes.hidden)


class Maker:
    """Draws tensors whose values depend on (seed, name) alone, so that one more tensor changes no other."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def normal(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> Tensor:
        return torch.randn(shape, generator=self._generator(name)) * deviation + mean

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> Tensor:
        return torch.rand(shape, generator=self._generator(name)) * (high - low) + low

    def linear(self, name: str, *shape: int) -> Tensor:
        """[..., out, in] that keeps the size of its input."""
        return self.normal(name, shape, LINEAR_GAIN / math.sqrt(shape[-1]))

    def norm(self, name: str, size: int, mean: float = 0.0) -> Tensor:
        """Weight of a norm: around 0 where the model computes 1 + weight, around 1 for the gated one."""
        return self.normal(name, (size,), NORM_NOISE, mean)

    def _generator(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed}/{name}".encode()))


class ShapeMaker(Maker):
    """Makes tensors without storage."""

    def normal(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> Tensor:
        return torch.empty(shape, device="meta")

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> Tensor:
        return torch.empty(shape, device="meta")


def _layer(make: Maker, prefix: str, layer_type: str, options: CheckpointOptions) -> dict[str, Tensor]:
    sizes = options.sizes
    mixer = _linear_attention if layer_type == "linear_attention" else _self_attention
    mlp = _moe if options.moe else _dense
    return {
        f"{prefix}input_layernorm.weight": make.norm(f"{prefix}input_layernorm.weight", sizes.hidden),
        **mixer(make, prefix, sizes),
        f"{prefix}post_attention_layernorm.weight": make.norm(
            f"{prefix}post_attention_layernorm.weight", sizes.hidden
        ),
        **mlp(make, f"{prefix}mlp.", sizes),
    }


def _self_attention(make: Maker, prefix: str, sizes: Sizes) -> dict[str, Tensor]:
    stem = f"{prefix}self_attn."
    query, key_value = sizes.heads * sizes.head_dim, sizes.key_value_heads * sizes.head_dim
    shapes = {
        "q_proj": (2 * query, sizes.hidden),
        "k_proj": (key_value, sizes.hidden),
        "v_proj": (key_value, sizes.hidden),
        "o_proj": (sizes.hidden, query),
    }
    tensors = _linears(make, stem, shapes)
    for name in ("q_norm", "k_norm"):
        tensors[f"{stem}{name}.weight"] = make.norm(f"{stem}{name}.weight", sizes.head_dim)
    return tensors


def _linear_attention(make: Maker, prefix: str, sizes: Sizes) -> dict[str, Tensor]:
    stem, hidden, value_heads = f"{prefix}linear_attn.", sizes.hidden, sizes.linear_value_heads
    conv_dim = 2 * sizes.linear_key_dim + sizes.linear_value_dim
    tensors = _linears(
        make,
        stem,
        {
            "in_proj_qkv": (conv_dim, hidden),
            "in_proj_z": (sizes.linear_value_dim, hidden),
            "in_proj_b": (value_heads, hidden),
            "in_proj_a": (value_heads, hidden),
            "out_proj": (hidden, sizes.linear_value_dim),
        },
    )
    # Decay per token is exp(-exp(A_log) * softplus(a + dt_bias)). Mamba's usual initialisation, A in [1, 16]
    # and steps in [0.001, 0.1], gives heads that forget at once beside heads that remember the whole prompt.
    decay = make.uniform(f"{stem}A_log", (value_heads,), 1.0, 16.0)
    step = torch.exp(make.uniform(f"{stem}dt_bias", (value_heads,), math.log(1e-3), math.log(1e-1)))
    return tensors | {
        f"{stem}conv1d.weight": make.normal(f"{stem}conv1d.weight", (conv_dim, 1, sizes.conv_kernel), 0.5),
        f"{stem}A_log": decay.log(),
        f"{stem}dt_bias": step + torch.log(-torch.expm1(-step)),
        f"{stem}norm.weight": make.norm(f"{stem}norm.weight", sizes.linear_value_head_dim, mean=1.0),
    }


def _dense(make: Maker, stem: str, sizes: Sizes) -> dict[str, Tensor]:
    return _gated_mlp(make, stem, sizes.hidden, sizes.intermediate)


def _moe(make: Maker, stem: str, sizes: Sizes) -> dict[str, Tensor]:
    experts, inner = sizes.experts, sizes.expert_intermediate
    shared = _gated_mlp(make, f"{stem}shared_expert.", sizes.hidden, sizes.shared_intermediate)
    return {
        # Twice the gain: routers of trained models are decisive, and ties between experts would be noise.
        f"{stem}gate.weight": make.linear(f"{stem}gate.weight", experts, sizes.hidden) * 2,
        f"{stem}experts.gate_up_proj": make.linear(
            f"{stem}experts.gate_up_proj", experts, 2 * inner, sizes.hidden
        ),
        f"{stem}experts.down_proj": make.linear(f"{stem}experts.down_proj", experts, sizes.hidden, inner),
        **shared,
        f"{stem}shared_expert_gate.weight": make.linear(f"{stem}shared_expert_gate.weight", 1, sizes.hidden),
    }


def _gated_mlp(make: Maker, stem: str, hidden: int, inner: int) -> dict[str, Tensor]:
    shapes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    return _linears(make, stem, shapes)


def _mtp(make: Maker, options: CheckpointOptions) -> dict[str, Tensor]:
    hidden = options.sizes.hidden
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    return {
        "mtp.fc.weight": make.linear("mtp.fc.weight", hidden, 2 * hidden),
        **{f"mtp.{norm}.weight": make.norm(f"mtp.{norm}.weight", hidden) for norm in norms},
        **_layer(make, "mtp.layers.0.", "full_attention", options),
    }


def _vision(make: Maker, sizes: Sizes) -> dict[str, Tensor]:
    hidden, inner, merged = sizes.vision_hidden, sizes.vision_intermediate, 4 * sizes.vision_hidden
    patch = (hidden, 3, 2, sizes.vision_patch, sizes.vision_patch)
    tensors = {
        "visual.patch_embed.proj.weight": make.normal("visual.patch_embed.proj.weight", patch, 0.1),
        "visual.patch_embed.proj.bias": make.normal("visual.patch_embed.proj.bias", (hidden,), 0.1),
        "visual.pos_embed.weight": make.normal(
            "visual.pos_embed.weight", (sizes.vision_positions, hidden), 0.1
        ),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for index in range(sizes.vision_depth):
        stem = f"visual.blocks.{index}."
        shapes |= {f"{stem}norm1": (hidden,), f"{stem}norm2": (hidden,)}
        shapes |= {f"{stem}attn.qkv": (3 * hidden, hidden), f"{stem}attn.proj": (hidden, hidden)}
        shapes |= {f"{stem}mlp.linear_fc1": (inner, hidden), f"{stem}mlp.linear_fc2": (hidden, inner)}
    shapes |= {
        "visual.merger.norm": (hidden,),
        "visual.merger.linear_fc1": (merged, merged),
        "visual.merger.linear_fc2": (sizes.hidden, merged),
    }
    for name, shape in shapes.items():
        is_norm = len(shape) == 1
        weight = (
            make.norm(f"{name}.weight", shape[0], 1.0) if is_norm else make.linear(f"{name}.weight", *shape)
        )
        tensors[f"{name}.weight"] = weight
        tensors[f"{name}.bias"] = make.normal(f"{name}.bias", shape[:1], 0.1)
    return tensors


def _linears(make: Maker, stem: str, shapes: dict[str, tuple[int, int]]) -> dict[str, Tensor]:
    return {
        f"{stem}{name}.weight": make.linear(f"{stem}{name}.weight", *shape) for name, shape in shapes.items()
    }


def _layout_of_family(options: CheckpointOptions, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    sizes = options.sizes
    for name, tensor in tensors.items():
        prefix = _disk_prefix(name, options)
        stem = f"{prefix}{name.rpartition('.linear_attn.')[0]}.linear_attn."
        if options.family is not Family.QWEN3_NEXT or ".linear_attn.in_proj_" not in name:
            yield f"{prefix}{name}", tensor
        elif name.endswith("in_proj_qkv.weight"):
            z = tensors[name.replace("in_proj_qkv", "in_proj_z")]
            yield f"{stem}in_proj_qkvz.weight", fuse_qkvz(tensor, z, sizes)
        elif name.endswith("in_proj_b.weight"):
            a = tensors[name.replace("in_proj_b", "in_proj_a")]
            yield f"{stem}in_proj_ba.weight", fuse_ba(tensor, a, sizes)


def _disk_prefix(name: str, options: CheckpointOptions) -> str:
    if name.startswith(("mtp.", "lm_head.")):
        return ""
    return "model." if name.startswith("visual.") else options.text_prefix


def _split_experts(name: str, tensor: Tensor, options: CheckpointOptions) -> Iterator[tuple[str, Tensor]]:
    layout = options.mtp_layout if name.startswith("mtp.") else options.trunk_layout
    if ".mlp.experts." not in name or layout is ExpertLayout.FUSED:
        yield name, tensor
        return
    stem, _, projection = name.rpartition(".")
    for index, expert in enumerate(tensor):
        if projection == "gate_up_proj":
            gate, up = expert.chunk(2)
            yield f"{stem}.{index}.gate_proj.weight", gate
            yield f"{stem}.{index}.up_proj.weight", up
        else:
            yield f"{stem}.{index}.down_proj.weight", expert
