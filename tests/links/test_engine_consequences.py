"""Which public report belongs to which disagreement."""

import pytest

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, Precision
from draftproof.checkpoint.quantization import QuantizationDeclaration
from draftproof.links.engine_consequences import known_consequence

LAYER = "mtp.layers.0.mlp.up_proj"


def declaration(method):
    return QuantizationDeclaration(
        file="config.json",
        json_path="quantization_config",
        method=method,
        algorithm="",
        excludes=(),
        exclude_path=None,
        refused=(),
        cache_scheme=None,
        block=None,
        declared=lambda module: pytest.fail("not asked"),
    )


def stored(module, precision):
    weight = TensorEntry(f"{module}.weight", "BF16", (2, 2), "f", 0, 8)
    return ModulePrecision(module, precision, weight, {}, (2, 2))


@pytest.mark.parametrize(
    ("method", "module", "precision", "named"),
    [
        ("modelopt", "mtp.fc", Precision.BF16, "vllm#38832"),
        ("modelopt", LAYER, Precision.BF16, "sglang#36158"),
        ("modelopt_fp4", LAYER, Precision.BF16, "sglang#36158"),
        ("compressed-tensors", LAYER, Precision.BF16, "sglang#35797"),
        ("gptq", LAYER, Precision.BF16, "vllm#47828"),
        ("quark", LAYER, Precision.BF16, "sglang#36158"),
        ("fp8", LAYER, Precision.BF16, "builds the head packed"),
        ("modelopt", LAYER, Precision.NVFP4_MODELOPT, "forces the head of such a checkpoint to BF16"),
        ("fp8", LAYER, Precision.FP8_BLOCK, "builds the head unquantised"),
        ("modelopt", "lm_head", Precision.NVFP4_MODELOPT, "vllm#44081"),
        ("modelopt", "lm_head", Precision.BF16, ""),
        ("modelopt", "model.layers.0.mlp.gate", Precision.BF16, ""),
    ],
)
def test_what_is_known_to_follow(method, module, precision, named):
    text = known_consequence(declaration(method), stored(module, precision))
    assert named in text
    assert bool(named) == bool(text)
