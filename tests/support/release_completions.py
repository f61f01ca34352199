"""Fields that the excerpts in tests/data/configs lack and the releases' own config files have.

Their values are those of the same producer's other releases; a serving stack cannot be asked about a config
without them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_FP4_GROUP = {
    "dtype": "fp4",
    "qscheme": "per_group",
    "ch_axis": -1,
    "group_size": 32,
    "round_method": "half_even",
    "scale_type": "float",
    "scale_format": "e8m0",
    "scale_calculation_mode": "even",
    "observer_cls": "PerBlockMXObserver",
    "symmetric": None,
}
_QUARK = {
    "algo_config": None,
    "export": {
        "kv_cache_group": [],
        "min_kv_scale": 0.0,
        "pack_method": "reorder",
        "weight_format": "real_quantized",
        "weight_merge_groups": None,
    },
    "global_quant_config": {
        "bias": None,
        "input_tensors": {**_FP4_GROUP, "is_dynamic": True},
        "output_tensors": None,
        "target_device": None,
        "weight": {**_FP4_GROUP, "is_dynamic": False},
    },
    "kv_cache_quant_config": {},
    "layer_quant_config": {},
    "layer_type_quant_config": {},
    "quant_mode": "eager_mode",
    "softmax_quant_spec": None,
}
_FP8_CHANNEL = {
    "weights": {
        "num_bits": 8,
        "type": "float",
        "strategy": "channel",
        "symmetric": True,
        "dynamic": False,
    },
    "input_activations": {
        "num_bits": 8,
        "type": "float",
        "strategy": "token",
        "symmetric": True,
        "dynamic": True,
    },
}
_NVFP4 = {
    "weights": {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": 16,
        "symmetric": True,
        "dynamic": False,
    },
    "input_activations": {
        "num_bits": 4,
        "type": "float",
        "strategy": "tensor_group",
        "group_size": 16,
        "symmetric": True,
        "dynamic": "local",
    },
}
_TOP_LEVEL: Mapping[str, Mapping[str, Any]] = {
    "zai-org_GLM-4.5-Air": {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "rope_theta": 1_000_000,
        "routed_scaling_factor": 1.0,
        "use_qk_norm": False,
    },
    "zai-org_GLM-5.1": {"hidden_act": "silu"},
    "XiaomiMiMo_MiMo-V2.6-Flash-RL": {
        "sliding_window_size": 128,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "rope_scaling": None,
    },
}


def completed(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A release's config with the fields that its excerpt lacks.

    Args:
        name: `owner_name`.
        config: content of its excerpt.
    """
    made = copy.deepcopy({**_TOP_LEVEL.get(name, {}), **config})
    section = made.get("quantization_config")
    if name.startswith("amd_"):
        section.pop("_note", None)
        section.update(_QUARK)
    if name.startswith("unsloth_"):
        section["config_groups"]["group_0"].update(_FP8_CHANNEL)
        section["config_groups"]["group_1"].update(_NVFP4)
    return made
