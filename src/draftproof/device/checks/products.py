"""Products of every kind of matrix, and experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from draftproof.device.checks.called import CheckedCall, CheckSubject, Numbers, error_of
from draftproof.device.weights import DenseMlp, DeviceLayer, DeviceModel, MixtureMlp
from draftproof.kernels.experts_step import reference as experts_definition
from draftproof.kernels.experts_step.operands import experts_scratch
from draftproof.kernels.packed_linear import reference as linear_definition
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import TILE_ROWS, PackedMatrix, WeightFormat
from draftproof.kernels.routing.routing import allocate_routing, routing_scratch

MOST_OUTPUTS = 4096
"""Outputs of a matrix that are compared; the kernel makes all of them."""

RESIDUAL_SCALE = 1 / 16
"""Of the residual that experts add to: its own rounding, which is not theirs, must not hide them."""


def check_products(subject: CheckSubject) -> Iterator[CheckedCall]:
    """Every kind of matrix and of experts, with the rows of every shape of steps."""
    numbers = subject.numbers()
    for rows in sorted({shape.all_rows for shape in subject.shapes}):
        for name, matrix in distinct_matrices(subject.model).items():
            yield _check_matrix(subject, name, matrix, rows, numbers)
        for mlp in mixtures(subject.model):
            yield _check_experts(subject, mlp, rows, numbers)


def distinct_matrices(model: DeviceModel) -> dict[str, PackedMatrix]:
    """One matrix of every format and shape, by its description."""
    found: dict[str, PackedMatrix] = {}
    for matrix in _matrices(model):
        found.setdefault(describe(matrix), matrix)
    return found


def describe(matrix: PackedMatrix) -> str:
    """Format and shape in words, and those of the matrix behind it."""
    if matrix.behind is not None:
        return ", then ".join(describe(part) for part in matrix.apart)
    blocks = " in blocks" if matrix.format is WeightFormat.FP8 and matrix.block_scale is not None else ""
    pairs = ", gate and up" if matrix.paired else ""
    return f"{matrix.format.value}{blocks} [{matrix.rows}, {matrix.columns}]{pairs}"


def mixtures(model: DeviceModel) -> Iterator[MixtureMlp]:
    """One of every format of routed and shared experts."""
    seen = set()
    for layer in all_layers(model):
        if isinstance(layer.mlp, MixtureMlp):
            shared = layer.mlp.shared
            kind = layer.mlp.experts.format, None if shared is None else shared.gate_up.format
            if kind not in seen:
                seen.add(kind)
                yield layer.mlp


def all_layers(model: DeviceModel) -> tuple[DeviceLayer, ...]:
    """The trunk's, then the head's."""
    return (*model.layers, *(() if model.head is None else (model.head.layer,)))


def first_rows(matrix: PackedMatrix) -> PackedMatrix:
    """The leading rows, as far as they are compared."""
    rows = min(matrix.rows, MOST_OUTPUTS)
    tiles = -(-rows // TILE_ROWS)

    def of_rows(vector: Tensor | None) -> Tensor | None:
        return None if vector is None else vector[: tiles * TILE_ROWS]

    scale = matrix.block_scale
    if scale is not None and matrix.format is WeightFormat.INT8:
        scale = scale[:tiles]
    return replace(
        matrix,
        rows=rows,
        blocks=matrix.blocks[:tiles],
        row_scale=of_rows(matrix.row_scale),
        block_scale=scale,
        bias=of_rows(matrix.bias),
    )


def _matrices(model: DeviceModel) -> Iterator[PackedMatrix]:
    for layer in all_layers(model):
        yield from layer.mixer.projections.matrices
        yield layer.mixer.output
        if isinstance(layer.mlp, DenseMlp):
            yield layer.mlp.gate_up
            yield layer.mlp.down
    yield model.lm_head
    if model.head is not None:
        yield model.head.entry
        yield model.head.drafts.matrix


def _check_matrix(
    subject: CheckSubject, name: str, matrix: PackedMatrix, rows: int, numbers: Numbers
) -> CheckedCall:
    x = numbers.random(rows, matrix.columns)
    outputs = matrix.rows // 2 if matrix.paired else matrix.outputs
    epilogue = Epilogue.SILU_PAIRS if matrix.paired else Epilogue.NONE
    out = torch.full((rows, outputs), torch.nan, device=x.device)
    subject.kernels.packed_linear(x, matrix, out=out, epilogue=epilogue)
    part = matrix if matrix.paired or matrix.behind is not None else first_rows(matrix)
    expected = torch.empty(rows, part.rows // 2 if part.paired else part.outputs, device=x.device)
    linear_definition.packed_linear(x, part, out=expected, epilogue=epilogue)
    error = 0.0 if bool(torch.isfinite(out).all()) else float("nan")
    error += error_of(out[:, : expected.shape[1]], expected)
    return subject.judged(CheckedCall("packed_linear", f"{name}, {rows} rows", error))


def _check_experts(subject: CheckSubject, mlp: MixtureMlp, rows: int, numbers: Numbers) -> CheckedCall:
    kernels, experts = subject.kernels, mlp.experts
    residual = numbers.random(rows, experts.hidden) * RESIDUAL_SCALE
    device = residual.device
    routing = allocate_routing(rows, mlp.spec, device)
    padded = -(-mlp.router.rows // TILE_ROWS) * TILE_ROWS
    kernels.route(
        residual, mlp.norm, mlp.router, mlp.spec, routing_scratch(rows, mlp.spec, padded, device), routing
    )
    found, expected = residual.clone(), residual.clone()
    scratch = experts_scratch(rows, routing, experts, mlp.shared)
    kernels.experts_step(found, mlp.norm, experts, mlp.shared, routing, scratch)
    experts_definition.experts_step(expected, mlp.norm, experts, mlp.shared, routing, scratch)
    name = (
        f"{experts.format.value}, {experts.experts} of {experts.intermediate} x {experts.hidden}, {rows} rows"
    )
    error = error_of(found.float() - residual.float(), expected.float() - residual.float())
    return subject.judged(CheckedCall("experts_step", name, error))
