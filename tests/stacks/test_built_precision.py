"""The precision of a parameter is read from its dtype and its companions, as that of a tensor is."""

from __future__ import annotations

import pytest

from draftproof.stacks.built_parameter import BuiltParameter
from draftproof.stacks.built_precision import built_precision, head_summary, stored_precisions
from draftproof.stacks.served_checkpoint import StoredTensor


def parameter(name: str, dtype: str = "bfloat16", shape: tuple[int, ...] = (64, 64)) -> BuiltParameter:
    return BuiltParameter(name, shape, dtype, (), False, "")


def built(*parameters: BuiltParameter) -> str:
    names = {entry.name: entry for entry in parameters}
    return built_precision(parameters[0], names)


FP8, PACKED = "float8_e4m3fn", "uint8"
BLOCK, ROWS = "FP8 (block scales)", "FP8 (a scale per row)"
MODELOPT, COMPRESSED = "NVFP4 (ModelOpt)", "NVFP4 (compressed-tensors)"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ((parameter("fc.weight"),), "BF16"),
        ((parameter("fc.weight", "float32"),), "FP32"),
        ((parameter("a.weight", FP8), parameter("a.weight_scale_inv", "float32")), BLOCK),
        ((parameter("a.weight", FP8), parameter("a.weight_scale", shape=(1,))), "FP8 (one scale)"),
        ((parameter("a.weight", FP8), parameter("a.weight_scale", shape=(64, 1))), ROWS),
        ((parameter("a.weight", PACKED), parameter("a.weight_scale_2")), MODELOPT),
        ((parameter("a.weight_packed", PACKED), parameter("a.weight_global_scale")), COMPRESSED),
        ((parameter("a.weight", PACKED), parameter("a.weight_scale", PACKED)), "MXFP4"),
        ((parameter("a.qweight", "int32"), parameter("a.scales")), "GPTQ"),
        ((parameter("a.weight_packed", "int32"),), "INT4 (packed)"),
        ((parameter("a.w13_weight", PACKED), parameter("a.w13_weight_scale_2")), MODELOPT),
        ((parameter("a.w2_weight"), parameter("a.w13_weight", PACKED)), "BF16"),
        ((parameter("a.weight_scale_inv", "float32"), parameter("a.weight", FP8)), BLOCK),
        ((parameter("a.attention_sink_bias", "float32"),), "FP32"),
    ],
)
def test_precision_of_a_parameter(parameters: tuple[BuiltParameter, ...], expected: str) -> None:
    assert built(*parameters) == expected


def test_precision_of_stored_tensors_is_their_modules() -> None:
    stored = stored_precisions(
        [
            StoredTensor("mtp.a.weight", (64, 128), "F8_E4M3"),
            StoredTensor("mtp.a.weight_scale_inv", (1, 1), "F32"),
            StoredTensor("mtp.norm.weight", (64,), "BF16"),
            StoredTensor("mtp.experts.gate_up_proj", (2, 8, 8), "BF16"),
            StoredTensor("mtp.sink_bias", (8,), "F32"),
        ]
    )
    assert stored == {
        "mtp.a.weight": "FP8 (block scales)",
        "mtp.a.weight_scale_inv": "FP8 (block scales)",
        "mtp.norm.weight": "BF16",
        "mtp.experts.gate_up_proj": "BF16",
        "mtp.sink_bias": "FP32",
    }


def test_a_head_of_one_precision_is_said_in_one_word() -> None:
    assert head_summary([parameter("fc.weight"), parameter("model.layers.0.mlp.gate.weight")]) == "BF16"


def test_a_mixed_head_is_said_by_group() -> None:
    text = head_summary(
        [
            parameter("fc.weight"),
            parameter("model.layers.0.mlp.experts.w13_weight", "float8_e4m3fn"),
            parameter("model.layers.0.mlp.experts.w13_weight_scale_inv"),
        ]
    )
    assert text == "fc and norms BF16, experts FP8 (block scales)"
