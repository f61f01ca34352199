"""Heads of families that are not planned tensor by tensor: names and dtypes of public releases.

Shapes are left empty: no rule of a stack asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.served_checkpoint import StoredTensor

_MLA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")


def deepseek_head(layer: int, experts: int) -> dict[str, StoredTensor]:
    """DeepSeek-V3/R1: the layer after the trunk, its linears in block FP8."""
    return _tensors(_plain(_layer(layer, _nextn())), _block_fp8(_layer(layer, [*_mla(), *_experts(experts)])))


def glm_air_head(layer: int, experts: int) -> dict[str, StoredTensor]:
    """GLM-4.5-Air: grouped-query attention with biases, BF16."""
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    biases = [f"self_attn.{name}_proj.bias" for name in "qkv"]
    linears = [f"{module}.weight" for module in (*attention, *_experts(experts))]
    return _tensors(_plain(_layer(layer, [*_nextn(latent=False), *biases, *linears])))


def glm_sparse_head(layer: int, experts: int) -> dict[str, StoredTensor]:
    """GLM-5.1: latent attention with an indexer, BF16."""
    indexer = ("wq_b.weight", "wk.weight", "weights_proj.weight", "k_norm.weight", "k_norm.bias")
    linears = [f"{module}.weight" for module in (*_mla(), *_experts(experts))]
    names = [*_nextn(), *linears, *(f"self_attn.indexer.{name}" for name in indexer)]
    return _tensors(_plain(_layer(layer, names)))


def mimo_v2_head(layers: int) -> dict[str, StoredTensor]:
    """MiMo-V2.6: dense layers with one fused query, key and value projection."""
    plain = [f"{name}.weight" for name in ("enorm", "hnorm", "eh_proj", "final_layernorm")]
    plain += ["input_layernorm.weight", "pre_mlp_layernorm.weight", "self_attn.attention_sink_bias"]
    plain += ["self_attn.o_proj.weight"]
    packed = ["self_attn.qkv_proj", *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))]
    prefixes = [f"model.mtp.layers.{index}." for index in range(layers)]
    return _tensors(
        _plain(prefix + name for prefix in prefixes for name in plain),
        _block_fp8(prefix + name for prefix in prefixes for name in packed),
    )


def deepseek_v4_head(experts: int) -> dict[str, StoredTensor]:
    """DeepSeek-V4: `mtp.0.*` in the names of its own reference code."""
    plain = ("enorm.weight", "hnorm.weight", "norm.weight", "attn_norm.weight", "ffn_norm.weight")
    hyper = tuple(f"hc_{part}_{leaf}" for part in ("head", "attn", "ffn") for leaf in ("fn", "base", "scale"))
    attention = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b")
    packed = [*(f"attn.{name}" for name in attention), "e_proj", "h_proj"]
    packed += [f"ffn.experts.{e}.w{number}" for e in range(experts) for number in (1, 2, 3)]
    packed += [f"ffn.shared_experts.w{number}" for number in (1, 2, 3)]
    return _tensors(
        _plain(f"mtp.0.{name}" for name in (*plain, *hyper, "attn.attn_sink", "ffn.gate.weight")),
        (("F8_E4M3", f"mtp.0.{name}.weight") for name in packed),
        (("F32", f"mtp.0.{name}.scale") for name in packed),
    )


def flash_next_head(experts: int) -> dict[str, StoredTensor]:
    """Qwen3.8-Flash-Next: two projections instead of mtp.fc, no mtp.norm; partly known."""
    special = ("fc_embedding", "fc_hidden", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    block = [f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")]
    block += ["input_layernorm", "post_attention_layernorm", "mlp.gate", "mlp.shared_expert_gate"]
    block += [f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")]
    block += [f"mlp.experts.{e}.{name}_proj" for e in range(experts) for name in ("gate", "up", "down")]
    names = [*(f"mtp.{name}" for name in special), *(f"mtp.layers.0.{name}" for name in block)]
    return _tensors(_plain(f"{name}.weight" for name in names))


def _nextn(latent: bool = True) -> list[str]:
    names = ["embed_tokens", "enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head"]
    names += ["input_layernorm", "post_attention_layernorm", "mlp.gate"]
    if latent:
        names += ["self_attn.q_a_layernorm", "self_attn.kv_a_layernorm"]
    return [*(f"{name}.weight" for name in names), "mlp.gate.e_score_correction_bias"]


def _mla() -> list[str]:
    return [f"self_attn.{name}" for name in _MLA]


def _experts(count: int) -> list[str]:
    owners = [*(f"mlp.experts.{expert}" for expert in range(count)), "mlp.shared_experts"]
    return [f"{owner}.{name}_proj" for owner in owners for name in ("gate", "up", "down")]


def _layer(number: int, names: list[str]) -> list[str]:
    return [f"model.layers.{number}.{name}" for name in names]


_Dtyped = Iterator[tuple[str, str]]


def _plain(names: Iterator[str] | list[str]) -> _Dtyped:
    return (("F32" if name.endswith("correction_bias") else "BF16", name) for name in names)


def _block_fp8(modules: Iterator[str] | list[str]) -> _Dtyped:
    for module in modules:
        yield "F8_E4M3", f"{module}.weight"
        yield "F32", f"{module}.weight_scale_inv"


def _tensors(*parts: _Dtyped) -> dict[str, StoredTensor]:
    pairs = sorted((name, dtype) for part in parts for dtype, name in part)
    return {name: StoredTensor(name, (), dtype) for name, dtype in pairs}
