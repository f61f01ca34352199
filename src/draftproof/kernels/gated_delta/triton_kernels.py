"""The kernel of `triton.py`."""

from __future__ import annotations

import triton
import triton.language as tl

# Three products of TF32 halves: float32 in effect. The interpreter multiplies exactly anyway.
PRECISION: tl.constexpr = tl.constexpr("tf32x3")


@triton.jit
def scan_head(
    solved,
    pairs,
    query,
    keys_to_end,
    fade,
    state,
    outputs,
    chunks,
    ROWS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some value columns of one head, chunk by chunk; grid (heads, VALUE_DIM / COLUMNS)."""
    head = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    key = tl.arange(0, KEY_DIM)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    state_at = state + head * KEY_DIM * VALUE_DIM + key[:, None] * VALUE_DIM + column
    moving = tl.load(state_at)
    for chunk in range(chunks):
        at = head * chunks + chunk
        solved_at = solved + (at * ROWS + row) * (VALUE_DIM + KEY_DIM)
        seen = tl.load(solved_at + VALUE_DIM + key[None, :])
        corrections = tl.load(solved_at + column) - tl.dot(seen, moving, input_precision=PRECISION)
        given = tl.dot(
            tl.load(query + (at * ROWS + row) * KEY_DIM + key[None, :]), moving, input_precision=PRECISION
        )
        between = tl.load(pairs + (at * ROWS + row) * ROWS + tl.arange(0, ROWS)[None, :])
        given = tl.dot(between, corrections, given, input_precision=PRECISION)
        tl.store(outputs + (at * ROWS + row) * VALUE_DIM + column, given)
        keys = tl.load(keys_to_end + (at * ROWS + tl.arange(0, ROWS)[None, :]) * KEY_DIM + key[:, None])
        moving = tl.dot(keys, corrections, moving * tl.load(fade + at), input_precision=PRECISION)
    tl.store(state_at, moving)
