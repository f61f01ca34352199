"""The part of the chunked rule that goes chunk by chunk, as one kernel."""

from __future__ import annotations

from torch import Tensor

from draftproof.kernels.gated_delta.triton_kernels import scan_head

COLUMNS = 32
"""Value columns of a program: 32 heads of 128 give 128 programs."""


def scan_chunks(
    solved: Tensor, pairs: Tensor, query: Tensor, keys_to_end: Tensor, fade: Tensor, state: Tensor
) -> Tensor:
    """Arguments, result and effect as of `chunked.scan_chunks`; `state` is contiguous, and `solved` stays."""
    # The kernel counts addresses itself: views in another order would be read as something else, in silence.
    solved, pairs, query, keys_to_end, fade = (
        each.contiguous() for each in (solved, pairs, query, keys_to_end, fade)
    )
    assert state.is_contiguous()
    heads, chunks, rows, key_dim = query.shape
    value_dim = state.shape[2]
    outputs = query.new_empty(heads, chunks, rows, value_dim)
    columns = min(COLUMNS, value_dim)
    scan_head[(heads, value_dim // columns)](
        solved,
        pairs,
        query,
        keys_to_end,
        fade,
        state,
        outputs,
        chunks,
        ROWS=rows,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        COLUMNS=columns,
        num_warps=4,
        num_stages=2,
    )
    return outputs
