"""The machine that SGLang's own hooks are made to see: NVIDIA GPUs of one kind, everything installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.hardware.gpu import Gpu
from draftproof.stacks.evaluation import Given, Missing

CUDA_VERSION = "13.0"
"""New enough for every GPU of the table; what has to be installed is a matter of link 5."""
_COMMON = "sglang.srt.utils.common"
_ABSENT = (
    "is_hip", "is_npu", "is_xpu", "is_hpu", "is_mps", "is_musa", "is_cpu", "is_host_cpu_arm64",
    "is_gfx95_supported", "cpu_has_amx_support", "xpu_has_xmx_support",
)  # fmt: skip
_PRESENT = ("is_cuda", "is_flashinfer_available", "is_triton_kernels_available", "is_fi_a2a_supported")


def answers(value: Any) -> Callable[..., Any]:
    """A function that gives the same answer whatever it is asked."""

    def answer(*positional: Any, **keywords: Any) -> Any:
        return value

    return answer


def _keep_name(field: Any, owner: Any, name: str) -> None:
    field.attributes["name"] = name


def machine(gpu: Gpu) -> dict[str, Any]:
    """Substitutes by dotted name, for the evaluator.

    Args:
        gpu: every GPU of the machine is one of these.
    """
    major, minor = divmod(gpu.capability, 10)
    mebibytes = gpu.memory_bytes / (1 << 20)
    platform = Given(
        "current_platform",
        methods={
            "is_out_of_tree": answers(False),
            "is_cuda": answers(True),
            "apply_server_args_defaults": answers(None),
            "support_cuda_graph": answers(True),
            "support_piecewise_cuda_graph": answers(True),
        },
        attributes={"device_name": "cuda", "device_type": "cuda"},
        missing=Missing.UNKNOWN,
    )
    substitutes: dict[str, Any] = {
        "torch.cuda.is_available": answers(True),
        "torch.cuda.is_initialized": answers(True),
        "torch.cuda.get_device_capability": answers((major, minor)),
        "torch.cuda.get_device_name": answers(gpu.title),
        "torch.cuda.device_count": answers(8),
        "torch.version.cuda": CUDA_VERSION,
        "torch.version.hip": None,
        "sglang.srt.platforms.current_platform": platform,
        f"{_COMMON}.get_device": answers("cuda"),
        f"{_COMMON}.get_device_sm": answers(gpu.capability),
        f"{_COMMON}.get_device_capability": answers((major, minor)),
        f"{_COMMON}.get_device_memory_capacity": answers(mebibytes),
        f"{_COMMON}.get_nvgpu_memory_capacity": answers(mebibytes),
        f"{_COMMON}.get_nvidia_driver_version": answers((580, 0)),
        f"{_COMMON}.check_pkg_version_at_least": answers(True),
    }
    # A module is evaluated name by name, so the guard that its last statement sets would come too early.
    substitutes["sglang.srt.environ.EnvField.__set_name__"] = _keep_name
    substitutes |= {f"{_COMMON}.{name}": answers(False) for name in _ABSENT}
    substitutes |= {f"{_COMMON}.{name}": answers(True) for name in _PRESENT}
    return substitutes
