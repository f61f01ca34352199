"""Kernels against their definitions at load, on the weights that were loaded: a wrong one never speaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftproof.device.weights import DenseMlp, DeviceLayer, DeviceModel, MixtureMlp
from draftproof.errors import EngineFault
from draftproof.kernels.experts_step import reference as experts_definition
from draftproof.kernels.experts_step.operands import experts_scratch
from draftproof.kernels.packed_linear import reference as linear_definition
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import TILE_ROWS, PackedMatrix, WeightFormat
from draftproof.kernels.routing.routing import allocate_routing, routing_scratch
from draftproof.kernels.select import StepKernels

ROWS = (1, 4)
"""Of the calls that are checked: plain decoding and a window of three drafts."""
MOST_OUTPUTS = 4096
"""Outputs of a matrix that are compared; the kernel makes all of them."""
TOLERANCE = 0.05
"""Largest error in units of the outputs' spread: BF16 rounds an output of four spreads by 0.008, and sums of
thousands of products, taken in another order, differ by less."""

RESIDUAL_SCALE = 1 / 16
"""Of the residual that experts add to: its own rounding, which is not theirs, must not hide them."""


@dataclass(frozen=True)
class CheckedCall:
    """One comparison.

    Attributes:
        op: which kernel.
        subject: weights and rows, in words.
        error: the largest, in units of the outputs' spread.
    """

    op: str
    subject: str
    error: float


class _Numbers:
    """Random activations beside a tensor: on its device, in its dtype."""

    def __init__(self, beside: Tensor) -> None:
        self._dtype = beside.dtype
        self._generator = torch.Generator(beside.device).manual_seed(0)

    def random(self, rows: int, columns: int) -> Tensor:
        """[rows, columns], standard normal."""
        device = self._generator.device
        return torch.randn(rows, columns, device=device, generator=self._generator).to(self._dtype)


def self_check(
    kernels: StepKernels, model: DeviceModel, row_counts: Sequence[int] = ROWS
) -> tuple[CheckedCall, ...]:
    """Compare the products of every kind of matrix and of the experts with their definitions.

    Args:
        kernels: what is checked.
        model: the weights to do it on.
        row_counts: rows of the calls.

    Raises:
        EngineFault: a kernel gave NaN, or numbers that are wrong.
    """
    numbers = _Numbers(model.embedding)
    checked = []
    with torch.inference_mode():
        for rows in row_counts:
            for name, matrix in distinct_matrices(model).items():
                checked.append(_check_matrix(kernels, name, matrix, rows, numbers))
            for mlp in _mixtures(model):
                checked.append(_check_experts(kernels, mlp, rows, numbers))
    return tuple(checked)


def distinct_matrices(model: DeviceModel) -> dict[str, PackedMatrix]:
    """One matrix of every format and shape, by its description."""
    found: dict[str, PackedMatrix] = {}
    for matrix in _matrices(model):
        found.setdefault(describe(matrix), matrix)
    return found


def describe(matrix: PackedMatrix) -> str:
    """Format and shape in words."""
    blocks = " in blocks" if matrix.format is WeightFormat.FP8 and matrix.block_scale is not None else ""
    pairs = ", gate and up" if matrix.paired else ""
    return f"{matrix.format.value}{blocks} [{matrix.rows}, {matrix.columns}]{pairs}"


def _matrices(model: DeviceModel) -> Iterator[PackedMatrix]:
    for layer in _layers(model):
        yield from layer.mixer.projections.matrices
        yield layer.mixer.output
        if isinstance(layer.mlp, DenseMlp):
            yield layer.mlp.gate_up
            yield layer.mlp.down
    yield model.lm_head
    if model.head is not None:
        yield model.head.entry
        yield model.head.drafts.matrix


def _mixtures(model: DeviceModel) -> Iterator[MixtureMlp]:
    """One of every format of routed and shared experts."""
    seen = set()
    for layer in _layers(model):
        if isinstance(layer.mlp, MixtureMlp):
            shared = layer.mlp.shared
            kind = layer.mlp.experts.format, None if shared is None else shared.gate_up.format
            if kind not in seen:
                seen.add(kind)
                yield layer.mlp


def _layers(model: DeviceModel) -> tuple[DeviceLayer, ...]:
    return (*model.layers, *(() if model.head is None else (model.head.layer,)))


def _check_matrix(
    kernels: StepKernels, name: str, matrix: PackedMatrix, rows: int, numbers: _Numbers
) -> CheckedCall:
    x = numbers.random(rows, matrix.columns)
    outputs = matrix.rows // 2 if matrix.paired else matrix.rows
    epilogue = Epilogue.SILU_PAIRS if matrix.paired else Epilogue.NONE
    out = torch.full((rows, outputs), torch.nan, device=x.device)
    kernels.packed_linear(x, matrix, out=out, epilogue=epilogue)
    part = matrix if matrix.paired else _first_rows(matrix)
    expected = torch.empty(rows, part.rows // 2 if part.paired else part.rows, device=x.device)
    linear_definition.packed_linear(x, part, out=expected, epilogue=epilogue)
    error = 0.0 if bool(torch.isfinite(out).all()) else float("nan")
    error += _error(out[:, : expected.shape[1]], expected)
    return _judged(CheckedCall("packed_linear", f"{name}, {rows} rows", error), kernels)


def _check_experts(kernels: StepKernels, mlp: MixtureMlp, rows: int, numbers: _Numbers) -> CheckedCall:
    residual = numbers.random(rows, mlp.experts.hidden) * RESIDUAL_SCALE
    device = residual.device
    routing = allocate_routing(rows, mlp.spec, device)
    padded = -(-mlp.router.rows // TILE_ROWS) * TILE_ROWS
    kernels.route(
        residual, mlp.norm, mlp.router, mlp.spec, routing_scratch(rows, mlp.spec, padded, device), routing
    )
    found, expected = residual.clone(), residual.clone()
    scratch = experts_scratch(rows, routing, mlp.experts, mlp.shared)
    kernels.experts_step(found, mlp.norm, mlp.experts, mlp.shared, routing, scratch)
    experts_definition.experts_step(expected, mlp.norm, mlp.experts, mlp.shared, routing, scratch)
    experts = mlp.experts
    subject = (
        f"{experts.format.value}, {experts.experts} of {experts.intermediate} x {experts.hidden}, {rows} rows"
    )
    error = _error(found.float() - residual.float(), expected.float() - residual.float())
    return _judged(CheckedCall("experts_step", subject, error), kernels)


def _first_rows(matrix: PackedMatrix) -> PackedMatrix:
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


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().std())


def _judged(call: CheckedCall, kernels: StepKernels) -> CheckedCall:
    # NaN is not smaller than anything.
    if call.error < TOLERANCE:
        return call
    raise EngineFault(
        f"kernel {call.op} on {kernels.report.place} is wrong: {call.subject}: "
        f"largest error {call.error:.3g} of the outputs' spread",
        "Nothing was generated; `draftproof doctor` shows the kernels in force.",
    )
