"""Heads of families that are not planned tensor by tensor: names, shapes and dtypes of public releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from draftproof.stacks.served_checkpoint import StoredTensor

Shape = tuple[int, ...]
Head = dict[str, StoredTensor]
Config = Mapping[str, Any]
_BLOCK = 128


def deepseek_head(config: Config) -> Head:
    """DeepSeek-V3/R1: the layer after the trunk, its linears in block FP8."""
    return _tensors(_after_trunk(config), _specials(config), {**_latent(config), **_experts(config)}, _fp8)


def glm_air_head(config: Config) -> Head:
    """GLM-4.5-Air: grouped-query attention with biases, BF16."""
    hidden, width = config["hidden_size"], config["head_dim"]
    rows = {
        "q": config["num_attention_heads"] * width,
        "k": config["num_key_value_heads"] * width,
        "v": config["num_key_value_heads"] * width,
    }
    plain = {**_specials(config), **{f"self_attn.{name}_proj.bias": (size,) for name, size in rows.items()}}
    linears = {f"self_attn.{name}_proj": (size, hidden) for name, size in rows.items()}
    linears["self_attn.o_proj"] = (hidden, rows["q"])
    return _tensors(_after_trunk(config), plain, {**linears, **_experts(config)}, _bf16)


def glm_sparse_head(config: Config) -> Head:
    """GLM-5.1: latent attention with an indexer, BF16."""
    hidden, width, heads = config["hidden_size"], config["index_head_dim"], config["index_n_heads"]
    plain = {
        **_specials(config),
        "self_attn.indexer.k_norm.weight": (width,),
        "self_attn.indexer.k_norm.bias": (width,),
    }
    indexer = {
        "self_attn.indexer.wq_b": (heads * width, config["q_lora_rank"]),
        "self_attn.indexer.wk": (width, hidden),
        "self_attn.indexer.weights_proj": (heads, hidden),
    }
    return _tensors(_after_trunk(config), plain, {**_latent(config), **indexer, **_experts(config)}, _bf16)


def _after_trunk(config: Config) -> str:
    return f"model.layers.{config['num_hidden_layers']}."


def _specials(config: Config) -> dict[str, Shape]:
    """What a layer of the DeepSeek kind has beside its linears."""
    hidden, table = config["hidden_size"], (config["vocab_size"], config["hidden_size"])
    norms = ["enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"]
    shapes: dict[str, Shape] = {f"{name}.weight": (hidden,) for name in norms}
    shapes |= {
        "embed_tokens.weight": table,
        "shared_head.head.weight": table,
        "eh_proj.weight": (hidden, 2 * hidden),
        "mlp.gate.weight": (config["n_routed_experts"], hidden),
        "mlp.gate.e_score_correction_bias": (config["n_routed_experts"],),
    }
    if "q_lora_rank" in config:
        shapes["self_attn.q_a_layernorm.weight"] = (config["q_lora_rank"],)
        shapes["self_attn.kv_a_layernorm.weight"] = (config["kv_lora_rank"],)
    return shapes


def _latent(config: Config) -> dict[str, Shape]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    plain, rotary, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        "self_attn.q_a_proj": (query, hidden),
        "self_attn.q_b_proj": (heads * (plain + rotary), query),
        "self_attn.kv_a_proj_with_mqa": (latent + rotary, hidden),
        "self_attn.kv_b_proj": (heads * (plain + value), latent),
        "self_attn.o_proj": (hidden, heads * value),
    }


def _experts(config: Config) -> dict[str, Shape]:
    hidden, size = config["hidden_size"], config["moe_intermediate_size"]
    owners = {f"mlp.experts.{expert}": size for expert in range(config["n_routed_experts"])}
    owners["mlp.shared_experts"] = size * config["n_shared_experts"]
    shapes: dict[str, Shape] = {}
    for owner, width in owners.items():
        shapes[f"{owner}.gate_proj"] = (width, hidden)
        shapes[f"{owner}.up_proj"] = (width, hidden)
        shapes[f"{owner}.down_proj"] = (hidden, width)
    return shapes


Storing = Callable[[str, Shape], Iterator[StoredTensor]]


def _bf16(module: str, shape: Shape) -> Iterator[StoredTensor]:
    yield StoredTensor(f"{module}.weight", shape, "BF16")


def _fp8(module: str, shape: Shape) -> Iterator[StoredTensor]:
    blocks = tuple(-(-side // _BLOCK) for side in shape)
    yield StoredTensor(f"{module}.weight", shape, "F8_E4M3")
    yield StoredTensor(f"{module}.weight_scale_inv", blocks, "F32")


def _tensors(prefix: str, plain: Mapping[str, Shape], linears: Mapping[str, Shape], storing: Storing) -> Head:
    tensors = [
        StoredTensor(prefix + name, shape, "F32" if name.endswith("correction_bias") else "BF16")
        for name, shape in plain.items()
    ]
    for module, shape in linears.items():
        tensors += storing(prefix + module, shape)
    return {tensor.name: tensor for tensor in sorted(tensors, key=lambda tensor: tensor.name)}
