"""Every CUDA source compiles for the shapes and formats of the released models, with the macros that its own
launcher gives it; this needs NVRTC and no GPU. Tensors are on torch's meta device: nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.cuda.compiler import compile_cubin, describe, is_available
from draftproof.kernels.decode_attention import cuda as attention
from draftproof.kernels.decode_attention.parameters import make_scratch
from draftproof.kernels.experts_step import cuda as few_rows_experts
from draftproof.kernels.experts_step import cuda_many_rows as many_rows_experts
from draftproof.kernels.experts_step.operands import SharedExpert, experts_scratch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear import cuda as linear
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import (
    BLOCK_BYTES,
    CHUNK_COLUMNS,
    PackedExperts,
    PackedMatrix,
    WeightFormat,
)
from draftproof.kernels.routing import cuda as routing
from draftproof.kernels.routing.routing import allocate_routing, routing_scratch
from tests.kernels.decode_attention.cases import Shape, make_case

pytestmark = pytest.mark.skipif(not is_available(), reason="NVRTC is not installed")

META = torch.device("meta")
ARCHITECTURE = "sm_90a"
BF16, FP8, INT8, NVFP4 = WeightFormat.BF16, WeightFormat.FP8, WeightFormat.INT8, WeightFormat.NVFP4
MOE = {2048: MoeSpec(256, 8, 512, 512), 3072: MoeSpec(256, 8, 1024, 1024), 4096: MoeSpec(512, 10, 1024, 1024)}
"""The mixtures of 35B, 122B and 397B by hidden size."""


@dataclass
class Compiling:
    """In place of the loader of kernels: compiles, and launches nothing."""

    folder: Path
    functions: list[str]

    def load_kernel(self, path: Path, function: str, _: torch.device, **definitions: int) -> Compiling:
        cubin = compile_cubin(describe(path, ARCHITECTURE, tuple(sorted(definitions.items()))), self.folder)
        assert function.encode() in cubin
        self.functions.append(function)
        return self

    def launch(self, *_: object, **__: object) -> None:
        return


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiling:
    made = Compiling(tmp_path, [])
    modules: tuple[ModuleType, ...] = (
        attention,
        few_rows_experts,
        many_rows_experts,
        linear,
        routing,
    )
    for module in modules:
        monkeypatch.setattr(module, "load_kernel", made.load_kernel)
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return made


def rows_of(rows: int, width: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(rows, width, dtype=dtype, device=META)


def numbers(*shape: int) -> Tensor:
    return torch.empty(shape, device=META)


def blocks(kept_as: WeightFormat, tiles: int, columns: int, *leading: int) -> Tensor:
    chunks = -(-columns // CHUNK_COLUMNS[kept_as])
    return torch.empty(*leading, tiles, chunks, BLOCK_BYTES[kept_as], dtype=torch.uint8, device=META)


def matrix_of(
    kept_as: WeightFormat, rows: int, columns: int, scaled: bool = False, paired: bool = False
) -> PackedMatrix:
    scale = None
    if scaled or kept_as is INT8:
        scale = numbers(-(-rows // 128), -(-columns // 128))
    tiles = -(-rows // 16)
    row_scale = None if kept_as is BF16 else numbers(tiles * 16)
    return PackedMatrix(
        kept_as, rows, columns, blocks(kept_as, tiles, columns), row_scale, scale, paired=paired
    )


def experts_of(kept_as: WeightFormat, hidden: int, scaled: bool = False) -> PackedExperts:
    spec = MOE[hidden]
    count, width = spec.num_experts, spec.intermediate_size
    return PackedExperts(
        kept_as,
        hidden,
        width,
        blocks(kept_as, width // 8, hidden, count),
        blocks(kept_as, hidden // 16, width, count),
        None if kept_as is BF16 else numbers(count, width * 2),
        None if kept_as is BF16 else numbers(count, hidden),
        numbers(count, width // 64, hidden // 128) if scaled else None,
        numbers(count, hidden // 128, width // 128) if scaled else None,
    )


def shared_of(kept_as: WeightFormat, hidden: int, scaled: bool = False) -> SharedExpert:
    width = MOE[hidden].shared_intermediate_size
    return SharedExpert(
        matrix_of(kept_as, 2 * width, hidden, scaled, paired=True), matrix_of(kept_as, hidden, width, scaled)
    )


@pytest.mark.parametrize("rows", [4, 16])
@pytest.mark.parametrize(
    ("kept_as", "scaled"), [(BF16, False), (FP8, False), (FP8, True), (INT8, False), (NVFP4, False)]
)
def test_products(compiling: Compiling, kept_as: WeightFormat, scaled: bool, rows: int) -> None:
    norm = NormScale(numbers(2048), 1e-6)
    linear.packed_linear(
        rows_of(rows, 2048), matrix_of(kept_as, 12352, 2048, scaled), out=rows_of(rows, 12352), norm=norm
    )
    joined = replace(matrix_of(kept_as, 12288, 2048, scaled), behind=matrix_of(BF16, 64, 2048))
    linear.packed_linear(rows_of(rows, 2048), joined, out=rows_of(rows, 12352), norm=norm)
    pair = matrix_of(kept_as, 34816, 5120, scaled, paired=True)
    linear.packed_linear(rows_of(rows, 5120), pair, out=rows_of(rows, 17408), epilogue=Epilogue.SILU_PAIRS)
    back = matrix_of(kept_as, 5120, 17408, scaled)
    residual = rows_of(rows, 5120)
    linear.packed_linear(rows_of(rows, 17408), back, out=residual, residual=residual)
    share_a_launch = kept_as is FP8 and rows <= linear.SHARED_LAUNCH_ROWS
    assert compiling.functions == ["packed_linear"] * (4 if share_a_launch else 5)


@pytest.mark.parametrize("hidden", [2048, 3072, 4096])
@pytest.mark.parametrize(
    ("kept_as", "shared", "scaled"),
    [(BF16, BF16, False), (FP8, FP8, True), (NVFP4, NVFP4, False), (NVFP4, BF16, False)],
)
def test_experts(
    compiling: Compiling, kept_as: WeightFormat, shared: WeightFormat, scaled: bool, hidden: int
) -> None:
    experts, beside = experts_of(kept_as, hidden, scaled), shared_of(shared, hidden, scaled)
    norm = NormScale(numbers(hidden), 1e-6)
    for rows in (4, 8):
        room = allocate_routing(rows, MOE[hidden], META)
        if few_rows_experts.unsupported_shape(rows, experts, beside, room) is None:
            scratch = experts_scratch(rows, room, experts, beside)
            few_rows_experts.experts_step(rows_of(rows, hidden), norm, experts, beside, room, scratch)
    room = allocate_routing(64, MOE[hidden], META)
    scratch = experts_scratch(64, room, experts, beside)
    assert many_rows_experts.unsupported_shape(experts, beside) is None
    many_rows_experts.add_experts(
        rows_of(64, hidden), rows_of(64, hidden), norm, experts, beside, room, scratch
    )
    assert set(compiling.functions) >= {"experts_step", "experts_product", "experts_combine"}


@pytest.mark.parametrize("hidden", [2048, 3072, 4096])
def test_routing(compiling: Compiling, hidden: int) -> None:
    spec = MOE[hidden]
    router = matrix_of(BF16, spec.num_experts + 1, hidden)
    for rows in (4, 64, 256):
        room, scratch = (
            allocate_routing(rows, spec, META),
            routing_scratch(rows, spec, router.blocks.shape[0] * 16, META),
        )
        routing.route(rows_of(rows, hidden), NormScale(numbers(hidden), 1e-6), router, spec, scratch, room)
    assert compiling.functions == ["route"] * 3


@pytest.mark.parametrize(("heads", "key_value_heads"), [(16, 2), (32, 2), (24, 4)])
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_attention(compiling: Compiling, heads: int, key_value_heads: int, rows: int) -> None:
    for room in (1024, 9000):
        case = make_case(Shape(heads, key_value_heads, 256, 64), [3], rows, room=room)
        out = torch.empty(rows, heads * 256, dtype=torch.bfloat16)
        scratch = make_scratch(case.parameters, 1, rows, room)
        attention.decode_attention(
            case.projected, case.parameters, case.keys, case.values, case.geometry, scratch, out=out
        )
    assert set(compiling.functions) == {"decode_attention", "merge_parts"}
