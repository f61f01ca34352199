"""Run a backend on a case with poisoned outputs and scratch."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from draftproof.kernels.decode_attention.parameters import AttentionScratch, Past
from tests.kernels.decode_attention.cases import NAN, Case

# Weights of the values are rounded to BF16 before the product, and so is the result.
TOLERANCE = {"atol": 1.6e-2, "rtol": 1.6e-2}


def scratch_of(case: Case, splits: int) -> AttentionScratch:
    shape = (splits, len(case.projected), case.parameters.heads)
    device = case.projected.device
    return AttentionScratch(
        torch.full((*shape, case.parameters.head_dim), NAN, device=device),
        torch.full((2, *shape), NAN, device=device),
    )


def run(
    module: ModuleType, case: Case, splits: int, row_index: Tensor | None = None, past: Past = Past.MOVING
) -> Tensor:
    rows = len(case.projected) if row_index is None else case.geometry.batch
    width = case.parameters.heads * case.parameters.head_dim
    out = torch.full((rows, width), NAN, dtype=torch.bfloat16, device=case.projected.device)
    common = (case.projected, case.parameters, case.keys, case.values, case.geometry)
    scratch = scratch_of(case, splits)
    if row_index is None:
        module.decode_attention(*common, scratch, out=out, past=past)
    else:
        module.decode_attention_selected(*common, row_index, scratch, out=out, past=past)
    return out
