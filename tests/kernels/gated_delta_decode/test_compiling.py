"""The CUDA sources compile, for every launch shape and kind of window; this needs NVRTC and no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.kernels.cuda.compiler import compile_cubin, describe, is_available
from draftproof.kernels.gated_delta_decode import cuda

pytestmark = pytest.mark.skipif(not is_available(), reason="NVRTC is not installed")


@pytest.mark.parametrize(
    ("shape", "rows", "window"),
    [
        (cuda.FEWEST_HEADS, 1, 0),
        (cuda.FEWEST_HEADS, 4, 4),
        (cuda.ONE_ROW_OF_FEW_HEADS, 1, 4),
        (cuda.FEW_HEADS, 4, 4),
        (cuda.FEW_HEADS_OF_MANY_ROWS, 8, 8),
        (cuda.SOME_HEADS_OF_MANY_ROWS, 2, 4),
        (cuda.ONE_ROW_OF_SOME_HEADS, 1, 4),
        (cuda.ONE_ROW, 1, 4),
        (cuda.MANY_HEADS, 4, 4),
        (cuda.MANY_HEADS_OF_MANY_ROWS, 8, 8),
    ],
    ids=str,
)
def test_it_compiles(shape: cuda.LaunchShape, rows: int, window: int, tmp_path: Path) -> None:
    definitions = {
        "KEY_HEADS": 16,
        "VALUE_HEADS": 32,
        "ROWS": rows,
        "WINDOW": window,
        "STASH": int(rows > 1),
        **shape.definitions,
    }
    source = cuda.FOLDER / f"{shape.function}.cu"
    assert compile_cubin(describe(source, "sm_90a", tuple(sorted(definitions.items()))), tmp_path)
