"""Rows that enter a stack of layers, in Triton: one program for each row and part of it."""

from __future__ import annotations

import triton
from torch import Tensor

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.embedding.triton_kernels import copy_embeddings, copy_last_rows, enter_rows
from draftproof.kernels.norm.scale import NormScale

COPY_BLOCK = 1024
COPY_WARPS = 2
NORM_WARPS = 8


def embed_inputs(inputs: Tensor, slots: Tensor, embedding: Tensor, out: Tensor) -> None:
    """See `reference.embed_inputs`."""
    rows, hidden = out.shape
    early = has_dependent_launch(out)
    copy_embeddings[(rows, triton.cdiv(hidden, COPY_BLOCK))](
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
    copy_last_rows[(batch, triton.cdiv(width, COPY_BLOCK))](
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
    enter_rows[(rows, 2)](
        tokens, token_stride, tokens if slots is None else slots, residual, embedding,
        of_embedding.weight, of_output.weight, of_hidden.weight,
        of_embedding.epsilon, of_output.epsilon, of_hidden.epsilon, out, hidden,
        BY_SLOT=slots is not None, BLOCK=triton.next_power_of_2(hidden), PDL=early,
        num_warps=NORM_WARPS, launch_pdl=early,
    )  # fmt: skip
