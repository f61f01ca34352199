"""Rows that enter a stack of layers, in Triton: one program for each row and part of it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.triton_operands import to_bfloat16

COPY_BLOCK = 1024
COPY_WARPS = 2
NORM_WARPS = 8


def embed_inputs(inputs: Tensor, slots: Tensor, embedding: Tensor, out: Tensor) -> None:
    """See `reference.embed_inputs`."""
    rows, hidden = out.shape
    early = has_dependent_launch(out)
    _embed_inputs[(rows, triton.cdiv(hidden, COPY_BLOCK))](
        inputs, inputs.stride(0), slots, embedding, out, rows // slots.shape[0], hidden,
        BLOCK=COPY_BLOCK, PDL=early, num_warps=COPY_WARPS, launch_pdl=early,
    )  # fmt: skip


def enter_head(
    tokens: Tensor,
    residual: Tensor,
    embedding: Tensor,
    embedding_norm: NormScale,
    output_norm: NormScale,
    hidden_norm: NormScale,
    out: Tensor,
) -> None:
    """See `reference.enter_head`."""
    # Without slots a row's token is its own.
    _enter(tokens, 1, None, residual, embedding, (embedding_norm, output_norm, hidden_norm), out)


def enter_chain(
    inputs: Tensor,
    place: int,
    slots: Tensor,
    residual: Tensor,
    embedding: Tensor,
    embedding_norm: NormScale,
    output_norm: NormScale,
    hidden_norm: NormScale,
    out: Tensor,
) -> None:
    """See `reference.enter_chain`."""
    norms = (embedding_norm, output_norm, hidden_norm)
    _enter(inputs[:, place], inputs.stride(0), slots, residual, embedding, norms, out)


def last_rows(rows: Tensor, accepted: Tensor, out: Tensor) -> None:
    """See `reference.last_rows`."""
    batch, width = out.shape
    early = has_dependent_launch(out)
    _last_rows[(batch, triton.cdiv(width, COPY_BLOCK))](
        rows, accepted, out, rows.shape[0] // batch, width,
        BLOCK=COPY_BLOCK, PDL=early, num_warps=COPY_WARPS, launch_pdl=early,
    )  # fmt: skip


def _enter(
    tokens: Tensor,
    token_stride: int,
    slots: Tensor | None,
    residual: Tensor,
    embedding: Tensor,
    norms: tuple[NormScale, NormScale, NormScale],
    out: Tensor,
) -> None:
    rows, hidden = residual.shape
    early = has_dependent_launch(out)
    of_embedding, of_output, of_hidden = norms
    _enter_rows[(rows, 2)](
        tokens, token_stride, tokens if slots is None else slots, residual, embedding,
        of_embedding.weight, of_output.weight, of_hidden.weight,
        of_embedding.epsilon, of_output.epsilon, of_hidden.epsilon, out, hidden,
        BY_SLOT=slots is not None, BLOCK=triton.next_power_of_2(hidden), PDL=early,
        num_warps=NORM_WARPS, launch_pdl=early,
    )  # fmt: skip


@triton.jit
def _embed_inputs(
    inputs, stride, slots, embedding, out, rows, hidden, BLOCK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
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
def _last_rows(rows, accepted, out, window, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
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
def _enter_rows(
    tokens, token_stride, slots, residual, embedding, embedding_weight, output_weight, hidden_weight,
    embedding_epsilon, output_epsilon, hidden_epsilon, out, hidden,
    BY_SLOT: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
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
