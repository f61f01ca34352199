"""Load a shape, time every cell in turns, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from draftproof.bench.figures import Cell, CellFigures, cell_figures
from draftproof.bench.kernel_table import KernelTable, kernel_table
from draftproof.bench.microbench import MicroFigure, microbenchmarks
from draftproof.bench.place import Place
from draftproof.bench.request import BenchRequest
from draftproof.bench.result import BenchResult
from draftproof.bench.stepping import (
    StepSample,
    fill_state,
    place_sequences,
    rewind,
    sample_steps,
)
from draftproof.bench.subject import LAYER_GROUP, Subject, load_subject
from draftproof.device.checks.products import describe
from draftproof.device.graphs import Eager, Recorder, recorder_for
from draftproof.device.machine import StepMachine
from draftproof.device.self_check import check_steps
from draftproof.device.shapes import StepShape, bucket_of
from draftproof.hardware.traffic import Workload
from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.kernels.select import StepKernels, kernels_for
from draftproof.kernels.selection_words import selection_lines

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Bench:
    """Everything that cells share."""

    request: BenchRequest
    place: Place
    kernels: StepKernels
    subject: Subject
    machines: dict[int, StepMachine]
    bandwidth: float
    load_seconds: float
    recorder: Recorder


def run_bench(request: BenchRequest, place: Place, tell: Tell) -> BenchResult:
    """Carry out a request; parameters and errors as of `bench_stages`, of which this is the last."""
    *_, result = bench_stages(request, place, tell)
    return result


def bench_stages(request: BenchRequest, place: Place, tell: Tell) -> Iterator[BenchResult]:
    """Carry out a request part by part: what has been found so far, whenever something came to it. A fault in
    a later part, such as a profiler that does not answer, leaves what the earlier ones found.

    Args:
        request: what to measure.
        place: on which device.
        tell: gets a line whenever there is something to say.

    Raises:
        EnvironmentProblem: too little memory.
        UnsupportedRequest: no kernel for this precision on this GPU.
        EngineFault: a kernel gave something that is not a number.
    """
    bench = _prepare(request, place, tell)
    with torch.inference_mode():
        cells = _measure(bench, tell)
    result = BenchResult(
        request=request,
        layout_title=bench.subject.layout.title,
        layers=len(bench.subject.spec.layers),
        bandwidth=bench.bandwidth,
        load_seconds=bench.load_seconds,
        plan=bench.subject.plan,
        peak_bytes=place.peak_bytes(),
        selection=bench.kernels.report,
        cells=cells,
    )
    yield result
    # Not around a yield: the mode would be the caller's, too.
    if request.layers is not None:
        with torch.inference_mode():
            result = replace(result, layer_microseconds=_layer_microseconds(bench, tell))
        yield result
    if request.kernels:
        with torch.inference_mode():
            result = replace(result, kernel_tables=_tables(bench, tell))
        yield result
    if request.microbenchmarks:
        with torch.inference_mode():
            result = replace(result, microbenchmarks=_microbenchmarks(bench, tell))
        yield result


def _prepare(request: BenchRequest, place: Place, tell: Tell) -> _Bench:
    """Kernels chosen and checked, weights and state made."""
    device = place.device
    kernels = kernels_for(device, dict(request.backends), tell)
    bandwidth = place.read_bandwidth()
    tell(f"{place.name}: reads {bandwidth / 1e12:.2f} TB/s")
    begin = perf_counter()
    subject = load_subject(request, place)
    fill_state(subject)
    place.synchronize()
    load_seconds = perf_counter() - begin
    tell(
        f"{request.shape}, {len(subject.spec.layers)} layers, {request.precision} ({subject.layout.title}): "
        f"loaded in {load_seconds:.1f} s, {place.used_bytes() / 1e9:.1f} GB in use"
    )
    for line in selection_lines(kernels.report):
        tell(line)
    sizes = subject.state.sizes
    checked = check_steps(kernels, subject.model, request.shapes, sizes, (RowChoice.LARGEST,))
    worst = max(checked, key=lambda call: call.error)
    tell(
        f"self-check: {len(checked)} calls against their definitions, largest error {worst.error:.4f} of the "
        f"outputs' size ({worst.op}, {worst.subject})"
    )
    recorder = Eager() if request.eager else recorder_for(device)
    with torch.inference_mode():
        machines = _machines(request, subject, kernels, recorder)
    return _Bench(request, place, kernels, subject, machines, bandwidth, load_seconds, recorder)


def _machines(
    request: BenchRequest, subject: Subject, kernels: StepKernels, recorder: Recorder
) -> dict[int, StepMachine]:
    """One for each K: what it simulates is fixed when its steps are recorded."""
    machines = {}
    for draft_tokens in request.draft_tokens:
        shape = StepShape(max(request.batches), draft_tokens)
        machines[draft_tokens] = _machine(subject, kernels, shape, recorder, request.simulated(draft_tokens))
    return machines


def _machine(
    subject: Subject, kernels: StepKernels, shape: StepShape, recorder: Recorder, simulated: float | None
) -> StepMachine:
    drafts = None if simulated is None else round((simulated - 1.0) * 1000)
    return StepMachine(kernels, subject.model, subject.state, shape, recorder, drafts)


def _cells(request: BenchRequest) -> list[Cell]:
    return [
        Cell(batch, draft_tokens, request.simulated(draft_tokens))
        for batch in request.batches
        for draft_tokens in request.draft_tokens
    ]


def _measure(bench: _Bench, tell: Tell) -> tuple[CellFigures, ...]:
    """Samples of all cells in turns, in an order that rotates."""
    request = bench.request
    cells = _cells(request)
    samples: dict[Cell, list[StepSample]] = {cell: [] for cell in cells}
    place_sequences(
        bench.subject.state, max(request.batches), request.most_drafts, bench.subject.spec.vocab_size
    )
    for turn in range(request.repeats):
        first = turn % len(cells)
        for cell in (*cells[first:], *cells[:first]):
            rewind(bench.subject.state, cell.batch, request.context, cell.draft_tokens)
            machine = bench.machines[cell.draft_tokens]
            samples[cell].append(
                sample_steps(bench.place, machine, cell.batch, cell.draft_tokens, request.steps)
            )
    figures = tuple(_figures(bench, cell, samples[cell]) for cell in cells)
    for each in figures:
        tell(each.line)
    return figures


def _figures(bench: _Bench, cell: Cell, samples: list[StepSample]) -> CellFigures:
    mean_growth = sum(each.tokens for each in samples) / len(samples) / cell.batch / 2
    workload = Workload(
        draft_tokens=cell.draft_tokens,
        sequences=cell.batch,
        context=bench.request.context + round(mean_growth),
        draft_rows=_draft_rows(bench.subject),
    )
    return cell_figures(cell, samples, bench.subject.sizes, workload, bench.bandwidth)


def _draft_rows(subject: Subject) -> int | None:
    """Rows of the output head that weigh what the draft head weighs; None when it is the output head."""
    model = subject.model
    if model.head is None or model.head.drafts.matrix is model.lm_head:
        return None
    return round(model.head.drafts.matrix.bytes / model.lm_head.bytes * model.lm_head.rows)


def _layer_microseconds(bench: _Bench, tell: Tell) -> float | None:
    """Time of one layer in plain decoding: the step of all loaded layers less that of half of them."""
    request, subject = bench.request, bench.subject
    count = len(subject.spec.layers)
    half = count // (2 * LAYER_GROUP) * LAYER_GROUP
    if not half:
        return None
    batch = request.batches[0]
    seconds = []
    for layers in (half, count):
        part = replace(
            subject,
            model=replace(subject.model, layers=subject.model.layers[:layers], head=None),
            state=replace(subject.state, trunk=subject.state.trunk[:layers]),
        )
        machine = _machine(part, bench.kernels, StepShape(batch, 0), bench.recorder, None)
        samples = []
        for _ in range(request.repeats):
            rewind(subject.state, batch, request.context, 0)
            sample = sample_steps(bench.place, machine, batch, 0, request.steps)
            samples.append(sample.device_seconds / sample.steps)
        seconds.append(median(samples))
    found = (seconds[1] - seconds[0]) / (count - half) * 1e6
    tell(f"one layer, plain decoding, batch {batch}: {found:.2f} us ({count} layers less {half})")
    return found


def _tables(bench: _Bench, tell: Tell) -> tuple[tuple[str, KernelTable], ...]:
    tables = []
    for cell in _cells(bench.request):
        rewind(bench.subject.state, cell.batch, bench.request.context, cell.draft_tokens)
        machine = bench.machines[cell.draft_tokens]

        def step(machine: StepMachine = machine, cell: Cell = cell) -> None:
            machine.launch(range(cell.batch), cell.draft_tokens, RowChoice.LARGEST)

        table = kernel_table(bench.place, step, {"packed_linear": _products(bench, cell)})
        tell(
            f"{cell.title}: {table.launches:.0f} kernels, their sum {table.kernel_microseconds:.0f} us, "
            f"the step {table.step_microseconds:.0f} us"
        )
        for row in table.rows:
            each = row.microseconds / row.launches
            tell(f"  {row.microseconds:9.1f} us {row.launches:6.1f}x {each:7.2f} us each  {row.name[:80]}")
        tables.append((cell.title, table))
    return tuple(tables)


def _products(bench: _Bench, cell: Cell) -> tuple[str, ...]:
    """The matrices that one step multiplies by, in order."""
    found = []

    def noting(x: Tensor, matrix: PackedMatrix, **named: Any) -> None:
        found.append(describe(matrix))
        bench.kernels.packed_linear(x, matrix, **named)

    shape = StepShape(cell.batch, cell.draft_tokens)
    noted = replace(bench.kernels, packed_linear=noting)
    machine = _machine(bench.subject, noted, shape, Eager(), cell.simulated)
    machine.collect(machine.launch(range(cell.batch), cell.draft_tokens, RowChoice.LARGEST))
    return tuple(found)


def _microbenchmarks(bench: _Bench, tell: Tell) -> tuple[MicroFigure, ...]:
    """For every number of rows that the cells have, once."""
    figures = []
    seen = set()
    for cell in _cells(bench.request):
        shape = StepShape(bucket_of(cell.batch), cell.draft_tokens)
        if shape in seen:
            continue
        seen.add(shape)
        rewind(bench.subject.state, cell.batch, bench.request.context, cell.draft_tokens)
        tell(f"kernels alone, {shape.all_rows} rows (batch {shape.batch}, K={shape.draft_tokens}):")
        for each in microbenchmarks(bench.place, bench.subject, bench.kernels, bench.recorder, shape):
            tell(
                f"  {each.microseconds:8.2f} us  {each.nbytes / 1e6:8.2f} MB  "
                f"{each.share(bench.bandwidth):6.1%} of bandwidth  {each.op}: {each.subject}"
            )
            figures.append(each)
    return tuple(figures)
