"""One program for each row and part of it."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_operands import to_bfloat16


@triton.jit
def copy_embeddings(
    inputs, stride, slots, embedding, out, rows, hidden, BLOCK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """The head of a step. Its dependents are not released early: kernels of the step read what the last step
    wrote (geometry, state, pages) before they wait for their predecessor, so that one kernel must lie wholly
    between, also where steps are no graphs."""
    if PDL:
        gdc_wait()
    row = tl.program_id(0)
    token = tl.load(inputs + tl.load(slots + row // rows) * stride + row % rows)
    token = tl.maximum(token, 0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < hidden
    tl.store(
        out + row * hidden + columns, tl.load(embedding + token * hidden + columns, mask=mask), mask=mask
    )


@triton.jit
def copy_last_rows(rows, accepted, out, window, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    place = tl.program_id(0)
    row = place * window + tl.load(accepted + place)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    tl.store(out + place * width + columns, tl.load(rows + row * width + columns, mask=mask), mask=mask)


@triton.jit
def _normed(x, weight, epsilon, hidden, ROUND: tl.constexpr):
    """RMSNorm of one float32 row, whose padding is 0."""
    y = x * tl.rsqrt(tl.sum(x * x, 0) / hidden + epsilon) * weight
    if ROUND:
        y = to_bfloat16(y).to(tl.float32)
    return y


@triton.jit
def enter_rows(
    tokens, token_stride, slots, residual, embedding, embedding_weight, output_weight, hidden_weight,
    embedding_epsilon, output_epsilon, hidden_epsilon, out, hidden,
    BY_SLOT: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < hidden
    HALF: tl.constexpr = out.dtype.element_ty == tl.bfloat16
    if tl.program_id(1) == 0:
        weight = tl.load(embedding_weight + columns, mask=mask, other=0.0)
        if PDL:
            gdc_wait()
        at = row
        if BY_SLOT:
            at = tl.load(slots + row)
        token = tl.maximum(tl.load(tokens + at * token_stride), 0).to(tl.int64)
        x = tl.load(embedding + token * hidden + columns, mask=mask, other=0.0).to(tl.float32)
        y = _normed(x, weight, embedding_epsilon, hidden, HALF)
        tl.store(out + row * 2 * hidden + columns, y.to(out.dtype.element_ty), mask=mask)
    else:
        first = tl.load(output_weight + columns, mask=mask, other=0.0)
        second = tl.load(hidden_weight + columns, mask=mask, other=0.0)
        if PDL:
            gdc_wait()
        x = tl.load(residual + row * hidden + columns, mask=mask, other=0.0).to(tl.float32)
        x = _normed(x, first, output_epsilon, hidden, HALF)
        y = _normed(x, second, hidden_epsilon, hidden, HALF)
        tl.store(out + row * 2 * hidden + hidden + columns, y.to(out.dtype.element_ty), mask=mask)
