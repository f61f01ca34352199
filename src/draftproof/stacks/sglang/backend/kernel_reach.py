"""Which GPUs a kind of kernel was built for, and whether it multiplies 4- and 8-bit weights as they are.

This is about the kernels that SGLang calls, not about SGLang's source: they are compiled code of FlashInfer,
DeepGEMM, CUTLASS, Marlin and FlashAttention, so no line of the stack shows it, except the tests that it makes
before it chooses them.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.hardware.gpu import NATIVE_FP8, Gpu


@dataclass(frozen=True)
class Reach:
    """What is known about a kind of kernel.

    Attributes:
        marks: backends whose names hold one of these.
        capabilities: compute capabilities times ten that it was built for.
        sentence: the fact in words.
    """

    marks: tuple[str, ...]
    capabilities: frozenset[int]
    sentence: str


DATACENTRE = frozenset((100, 103))
_BLACKWELL = frozenset((100, 103, 120, 121))
EXPERTS = (
    Reach(
        ("flashinfer_trtllm",),
        DATACENTRE,
        "TensorRT-LLM's generated expert kernels exist for SM100 and SM103 alone",
    ),
    Reach(
        ("flashinfer_cutedsl",),
        DATACENTRE,
        "the CuTe DSL expert kernels are written for the tensor memory of SM100 and SM103",
    ),
    Reach(("flashinfer_cutlass", "cutlass"), frozenset((90, *_BLACKWELL)), "CUTLASS builds from SM90 on"),
    Reach(("marlin",), frozenset((80, 86, 87, 89, 90, *_BLACKWELL)), "Marlin runs from SM80 on"),
    Reach(("deep_gemm",), frozenset((90, *_BLACKWELL)), "DeepGEMM is built for SM90 and newer"),
)
"""Of NVFP4 experts, and of FP8 experts where the name is the same."""
DENSE = (
    Reach(
        ("flashinfer_cutedsl", "cutedsl"),
        DATACENTRE,
        "the CuTe DSL matrix kernels are written for SM100 and SM103",
    ),
    Reach(
        ("flashinfer_trtllm",), DATACENTRE, "TensorRT-LLM's matrix kernels exist for SM100 and SM103 alone"
    ),
    Reach(
        ("flashinfer_cutlass", "flashinfer_cudnn"),
        _BLACKWELL,
        "FP4 matrix kernels need the FP4 units of Blackwell",
    ),
    Reach(("marlin",), frozenset((80, 86, 87, 89, 90, *_BLACKWELL)), "Marlin runs from SM80 on"),
)
"""Of dense layers in NVFP4."""
ATTENTION = (
    Reach(("fa3",), frozenset((80, 86, 87, 89, 90)), "FlashAttention 3 runs from SM80 to SM90"),
    Reach(("fa4",), frozenset((90, *DATACENTRE)), "FlashAttention 4 is written for SM90, SM100 and SM103"),
    Reach(
        ("trtllm_mla", "cutedsl_mla"),
        DATACENTRE,
        "these kernels for latent attention exist for SM100 and SM103",
    ),
    Reach(("trtllm_mha",), frozenset((90, *_BLACKWELL)), "TensorRT-LLM's attention runs from SM90 on"),
    Reach(("flashmla",), frozenset((90, *DATACENTRE)), "FlashMLA is built for SM90 and SM100"),
)
"""Of attention."""
CONVERTING = ("marlin",)
"""Kernels that turn weights into BF16 first."""
TRITON = "triton"
TRITON_FP8 = "Triton multiplies e4m3 from SM89 on"


def reach_of(table: tuple[Reach, ...], backend: str) -> Reach | None:
    """What is known about a backend; None when nothing is."""
    return next((reach for reach in table if any(mark in backend for mark in reach.marks)), None)


def triton_refusal(backend: str, bits: int | None, gpu: Gpu) -> str | None:
    """Why Triton cannot multiply weights of so many bits on a GPU; None when it can, or is not asked."""
    if backend != TRITON or bits != 8 or gpu.capability >= NATIVE_FP8:
        return None
    return f"{TRITON_FP8}, and this is {gpu.architecture}"


def is_native(backend: str, bits: int | None, gpu: Gpu) -> bool | None:
    """Whether a kernel uses the GPU's own units for weights of so many bits."""
    if bits is None:
        return None
    if bits >= 16:
        return True
    if any(mark in backend for mark in CONVERTING):
        return False
    if bits == 8:
        return gpu.capability >= NATIVE_FP8
    return gpu.has_native_fp4
