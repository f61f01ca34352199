"""The runner of transformers beside the engine, on a micro shape."""

from __future__ import annotations

import math

import torch

from benchmarks.transformers_beside import random_model, text_config, time_generate


def micro_config() -> dict[str, object]:
    config = text_config("qwen3.5-35b-a3b")
    return config | {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "layer_types": config["layer_types"][:4],
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 64,
        "rope_parameters": config["rope_parameters"] | {"mrope_section": [2, 1, 1]},
    }


def test_every_token_is_timed() -> None:
    model = random_model(micro_config(), torch.device("cpu"))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    times = time_generate(model, 2, 5, 6, 30.0)
    assert len(times.next_s) == 5
    assert min(times.next_s) > 0
    assert math.isfinite(times.tokens_per_second)


def test_it_stops_at_its_deadline() -> None:
    model = random_model(micro_config(), torch.device("cpu"))
    times = time_generate(model, 1, 5, 100_000, 1.0)
    assert 2 <= len(times.next_s) < 100_000
