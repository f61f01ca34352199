"""What the CUDA kernels take, and who shares a context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from draftproof.kernels.decode_attention import cuda
from draftproof.kernels.decode_attention.parameters import make_scratch
from tests.kernels.decode_attention.cases import Shape, make_case


@pytest.mark.parametrize(
    ("batch", "longest", "cluster", "ranks"),
    [(1, 1024, 8, 8), (1, 32_768, 0, 66), (4, 32_768, 8, 8), (16, 1024, 2, 2), (64, 1024, 1, 1)],
)
def test_plans_of_the_35b(batch: int, longest: int, cluster: int, ranks: int) -> None:
    plan = cuda.plan_for(batch, 2, longest, 32)
    assert (plan.cluster, plan.ranks) == (cluster, ranks)


@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("batch", [1, 64])
def test_every_plan_fits_into_the_shared_memory_of_a_multiprocessor(tile: int, batch: int) -> None:
    plan = cuda.plan_for(batch, 2, 32_768, tile)
    assert cuda.shared_bytes(tile, 8, plan.stages) <= 227 * 1024


def test_a_cpu_is_refused_with_the_reason() -> None:
    case = make_case(Shape(head_dim=256), [3], 1)
    reason = cuda.supports(case.projected, case.parameters, case.keys, case.values, case.geometry)
    assert reason == "thread block clusters need compute capability 9.0"
    assert case.projected.dtype is torch.bfloat16


@dataclass
class Launches:
    """Stands for the loader of kernels; keeps what is launched."""

    made: list[tuple[str, dict[str, int], tuple[int, ...], int]] = field(default_factory=list)

    def load_kernel(self, _: object, name: str, __: torch.device, **definitions: int) -> Any:
        launches = self.made

        class Recorder:
            def launch(
                self, grid: tuple[int, ...], threads: int, arguments: Sequence[object], shared_bytes: int = 0
            ) -> None:
                launches.append((name, definitions, grid, len(arguments)))

        return Recorder()


def parameters_of(function: str) -> int:
    """How many a kernel of the source has."""
    match = re.search(rf"\n{function}\((.*?)\) {{", cuda.SOURCE.read_text(), re.DOTALL)
    assert match is not None
    return len(match[1].split(","))


@pytest.mark.parametrize(
    ("room", "rows", "names", "grid", "tile"),
    [
        (1024, 4, ["decode_attention"], (8, 2, 1), 32),
        (1024, 8, ["decode_attention"], (8, 2, 1), 64),
        (9000, 1, ["decode_attention", "merge_parts"], (66, 2, 1), 16),
    ],
)
def test_a_cluster_needs_one_launch_and_parts_two(
    monkeypatch: pytest.MonkeyPatch, room: int, rows: int, names: list[str], grid: tuple[int, ...], tile: int
) -> None:
    launches = Launches()
    monkeypatch.setattr(cuda, "load_kernel", launches.load_kernel)
    case = make_case(Shape(16, 2, 256, 64), [3], rows, room=room)
    out = torch.empty(rows, 16 * 256, dtype=torch.bfloat16)
    scratch = make_scratch(case.parameters, 1, rows, room)
    cuda.decode_attention(
        case.projected, case.parameters, case.keys, case.values, case.geometry, scratch, out=out
    )
    assert [name for name, *_ in launches.made] == names
    assert launches.made[0][2] == grid
    for name, definitions, _, arguments in launches.made:
        assert arguments == parameters_of(name)
        assert definitions["TILE"] == tile
