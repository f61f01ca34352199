"""Which kernels a device step would use on each GPU of this machine and why, with a self-check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape, sample_of
from draftproof.bench.subject import load_synthetic
from draftproof.device.self_check import self_check
from draftproof.device.shapes import StepShape, representative_shapes
from draftproof.device.weights import device_model
from draftproof.errors import DraftproofError
from draftproof.kernels.backend_rules import rules_in_words
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.kernels.select import StepKernels, kernels_for
from draftproof.kernels.selection_words import origin_in_words
from draftproof.runtime.state_store import StateSizes

SAMPLE = "qwen3.5-35b-a3b"
SAMPLE_LAYOUTS = ("nvfp4-3.6", "fp8", "bf16")
"""Together they hold every weight format."""
LARGEST = StepShape(16, 3)
SIZES = StateSizes(slots=16, pages=17, page_size=16, max_positions=1024, window_rows=LARGEST.rows)
"""Of the state that steps would run on."""


class GpuKernelCheck(NamedTuple):
    """One line: the op, whether it is as it should be, and what was found."""

    name: str
    good: bool
    detail: str


def gpu_kernel_checks() -> Iterator[GpuKernelCheck]:
    """Nothing without a CUDA device."""
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.device("cuda", index)
        kernels = kernels_for(device)
        report = kernels.report
        demoted = {each.op: each for each in report.demotions.counts}
        yield GpuKernelCheck(f"cuda:{index}", True, f"{report.place}: {origin_in_words(report)}")
        for op, rules in report.rules.items():
            reason = f"; demoted: {demoted[op].backend.value}: {demoted[op].reason}" if op in demoted else ""
            yield GpuKernelCheck(op, op not in demoted, rules_in_words(rules) + reason)
        yield from _numbers(kernels, device)


def _numbers(kernels: StepKernels, device: torch.device) -> Iterator[GpuKernelCheck]:
    """Every kernel on weights of a real release's widths against its definition."""
    for layout in SAMPLE_LAYOUTS:
        try:
            spec = sample_of(load_shape(SAMPLE))
            loaded = load_synthetic(spec, layout_named(layout), SIZES.max_positions, device)
            with torch.inference_mode():
                model = device_model(loaded.target, loaded.head)
            checked = self_check(kernels, model, representative_shapes(LARGEST), SIZES, tuple(RowChoice))
        except (DraftproofError, RuntimeError) as error:
            yield GpuKernelCheck(f"numbers, {layout}", False, str(error).splitlines()[0])
            continue
        largest = max(call.error for call in checked)
        detail = f"{len(checked)} calls within {largest:.3f} of the outputs' size of their definitions"
        yield GpuKernelCheck(f"numbers, {layout}", True, detail)
