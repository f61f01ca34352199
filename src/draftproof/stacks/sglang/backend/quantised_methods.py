"""The classes of SGLang that carry out a precision: where they are, and how they are made for a question."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoint.precision import Precision
from draftproof.stacks.evaluation import Given, Missing

_FOLDER = "sglang/srt/layers/quantization"
MODELOPT = f"{_FOLDER}/modelopt_quant.py"
FP8 = f"{_FOLDER}/fp8.py"
UNQUANTISED = f"{_FOLDER}/unquant.py"
FP4_CHOICE = f"{_FOLDER}/fp4_utils.py"
FP8_CHOICE = f"{_FOLDER}/fp8_utils.py"
_SCHEMES = f"{_FOLDER}/compressed_tensors/schemes"


@dataclass(frozen=True)
class MethodClass:
    """A class of the version.

    Attributes:
        file: where it is.
        name: its name.
        takes_config: its constructor's first argument is the quantisation's config.
        switches: arguments of its constructor that say whether a runner was asked for: name -> runner.
        config_name: of the class of the quantisation's config, in the same file; empty when there is none.
    """

    file: str
    name: str
    takes_config: bool = True
    switches: tuple[tuple[str, str], ...] = ()
    config_name: str = ""


EXPERT_METHODS = {
    Precision.NVFP4_MODELOPT: MethodClass(
        MODELOPT, "ModelOptNvFp4FusedMoEMethod", config_name="ModelOptFp4Config"
    ),
    Precision.NVFP4_COMPRESSED: MethodClass(
        f"{_SCHEMES}/compressed_tensors_w4a4_nvfp4_moe.py",
        "CompressedTensorsW4A4Nvfp4MoE",
        False,
        config_name="CompressedTensorsW4A4Nvfp4MoE",
    ),
    Precision.FP8_BLOCK: MethodClass(FP8, "Fp8MoEMethod", config_name="Fp8Config"),
    Precision.FP8_TENSOR: MethodClass(MODELOPT, "ModelOptFp8MoEMethod", config_name="ModelOptFp8Config"),
    Precision.BF16: MethodClass(
        UNQUANTISED,
        "UnquantizedFusedMoEMethod",
        False,
        (("use_triton_kernels", "triton_kernel"), ("use_flashinfer_trtllm_moe", "flashinfer_trtllm")),
    ),
}
DENSE_METHODS = {
    Precision.FP8_BLOCK: MethodClass(FP8, "Fp8LinearMethod", config_name="Fp8Config"),
    Precision.FP8_TENSOR: MethodClass(MODELOPT, "ModelOptFp8LinearMethod", config_name="ModelOptFp8Config"),
    Precision.NVFP4_MODELOPT: MethodClass(
        MODELOPT, "ModelOptFp4LinearMethod", config_name="ModelOptFp4Config"
    ),
    Precision.NVFP4_COMPRESSED: MethodClass(
        f"{_SCHEMES}/compressed_tensors_w4a4_nvfp4.py",
        "CompressedTensorsW4A4Fp4",
        False,
        config_name="CompressedTensorsW4A4Fp4",
    ),
}

WEIGHT_ONLY_EXPERTS = MethodClass(
    f"{_SCHEMES}/compressed_tensors_w4a16_nvfp4_moe.py", "CompressedTensorsW4A16Nvfp4MoE", False
)
"""What newer versions run NVFP4 experts of compressed-tensors with on GPUs without FP4 units."""
WEIGHT_ONLY_DENSE = MethodClass(
    f"{_SCHEMES}/compressed_tensors_w4a16_nvfp4.py", "CompressedTensorsW4A16Fp4", False
)
"""The same for dense layers."""


def quant_config(precision: Precision) -> Given:
    """The config object of a quantisation, as a serialised checkpoint leads to it."""
    blocks = [128, 128] if precision is Precision.FP8_BLOCK else None
    return Given(
        "quant_config",
        {
            "activation_scheme": "dynamic",
            "group_size": 16,
            "is_checkpoint_fp8_serialized": True,
            "is_checkpoint_nvfp4_serialized": True,
            "is_fp4_experts": False,
            "dequant_fp4_to_fp8": False,
            "use_mxfp8": False,
            "use_per_token_activation": False,
            "weight_block_size": blocks,
        },
        missing=Missing.NONE,
    )
