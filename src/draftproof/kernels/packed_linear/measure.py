"""Time of the packed linear on the shapes of real models, and the bytes that it moves, in a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import pack_dense, pack_fp8, pack_int8, pack_nvfp4

ROTATED_BYTES = 1 << 29
"""Weights that take turns, together far larger than the caches."""
MOST_COPIES = 24
LAUNCHES = 48
REPEATS = 11


@dataclass(frozen=True)
class LinearCase:
    """One projection of a model.

    Attributes:
        name: model and projection.
        kept_as: format of the weights.
        outputs: of the projection.
        inputs: of the projection.
        norm: whether the norm before it is part of the call.
        residual: whether the residual sum behind it is.
        wide: float32 out (logits).
    """

    name: str
    kept_as: WeightFormat
    outputs: int
    inputs: int
    norm: bool = True
    residual: bool = False
    wide: bool = False


@dataclass(frozen=True)
class LinearTime:
    """What a case took.

    Attributes:
        case: which.
        rows: of x.
        bytes: weights, scales, x and out, each once.
        microseconds: of one call among dependent ones, median of several graphs.
    """

    case: LinearCase
    rows: int
    bytes: int
    microseconds: float


def _mixers(
    name: str, kept_as: WeightFormat, hidden: int, recurrent: int, attention: int, back: int
) -> list[LinearCase]:
    return [
        LinearCase(f"{name} gdn in", kept_as, recurrent, hidden),
        LinearCase(f"{name} attention in", kept_as, attention, hidden),
        LinearCase(f"{name} out", kept_as, hidden, back, norm=False, residual=True),
    ]


BF16, FP8, NVFP4 = WeightFormat.BF16, WeightFormat.FP8, WeightFormat.NVFP4
CASES = (
    *_mixers("35b", BF16, 2048, 12352, 9216, 4096),
    *_mixers("35b", FP8, 2048, 12288, 9216, 4096),
    LinearCase("35b router", BF16, 257, 2048),
    LinearCase("35b draft head", BF16, 32768, 2048, wide=True),
    LinearCase("35b head", BF16, 248320, 2048, wide=True),
    LinearCase("35b head", FP8, 248320, 2048, wide=True),
    LinearCase("35b head", NVFP4, 248320, 2048, wide=True),
    LinearCase("35b mtp fc", BF16, 2048, 4096, norm=False),
    *_mixers("122b", BF16, 3072, 20608, 17408, 8192),
    *_mixers("397b", BF16, 4096, 20608, 17408, 8192),
    *_mixers("27b", BF16, 5120, 16480, 14336, 6144),
    LinearCase("27b gate and up", NVFP4, 34816, 5120),
    LinearCase("27b down", NVFP4, 5120, 17408, norm=False, residual=True),
    LinearCase("27b gate and up", BF16, 34816, 5120),
    LinearCase("27b down", BF16, 5120, 17408, norm=False, residual=True),
)
"""Every kind of projection of the four models."""


def measure(
    case: LinearCase, rows: int, packed_linear: Callable[..., None], device: torch.device
) -> LinearTime:
    """Time one case; a dependent chain of calls whose weights come from memory each time.

    Args:
        case: which.
        rows: of x.
        packed_linear: an implementation.
        device: a GPU.
    """
    matrix = random_matrix(case, device)
    copies = max(2, min(MOST_COPIES, ROTATED_BYTES // matrix.blocks.numel()))
    matrices = [matrix, *(replace(matrix, blocks=matrix.blocks.clone()) for _ in range(copies - 1))]
    x = torch.randn(rows, case.inputs, device=device).bfloat16()
    dtype = torch.float32 if case.wide else torch.bfloat16
    out = torch.zeros(rows, case.outputs, dtype=dtype, device=device)
    norm = NormScale(torch.rand(case.inputs, device=device) + 0.5, 1e-6) if case.norm else None
    residual = torch.randn_like(out) if case.residual else None

    def call(index: int) -> None:
        packed_linear(x, matrices[index % copies], out=out, norm=norm, residual=residual)

    launches = max(copies, LAUNCHES // copies * copies)
    moved = matrix.bytes + x.numel() * 2 + out.numel() * out.element_size() * (2 if case.residual else 1)
    return LinearTime(case, rows, moved, _microseconds(call, launches))


def random_matrix(case: LinearCase, device: torch.device) -> PackedMatrix:
    """Weights of a case, about 0.02 in size."""
    outputs, inputs = case.outputs, case.inputs
    if case.kept_as is WeightFormat.NVFP4:
        packed = torch.randint(0, 256, (outputs, inputs // 2), device=device, dtype=torch.uint8)
        scale = (torch.rand(outputs, inputs // 16, device=device) + 0.5).to(torch.float8_e4m3fn)
        return pack_nvfp4(packed, scale, torch.tensor(0.005, device=device))
    weight = torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16) * 0.02
    if case.kept_as is WeightFormat.FP8:
        return pack_fp8((weight * 1000).to(torch.float8_e4m3fn), torch.tensor(0.001, device=device))
    return pack_int8(weight) if case.kept_as is WeightFormat.INT8 else pack_dense(weight)


def _microseconds(call: Callable[[int], None], launches: int) -> float:
    """Of one call, in a graph of `launches` calls."""
    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(launches):
            call(index)
    graph.replay()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / launches)
    return float(sorted(times)[len(times) // 2])
