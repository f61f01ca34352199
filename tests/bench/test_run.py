"""A whole benchmark on a CPU, with every op's definition and a model of a few small layers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ModelSpec
from draftproof.bench import place, record, request, run, subject
from draftproof.bench.request import BenchRequest, parse_backend
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.errors import EngineFault, EnvironmentProblem, UsageError
from draftproof.kernels.backend_rules import Backend
from draftproof.kernels.packed_linear import reference
from draftproof.kernels.select import kernels_for

SHAPE = "qwen3.5-35b-a3b"
BANDWIDTH = 1e10


class HostClock:
    """Wall time."""

    def __init__(self) -> None:
        self._begin = perf_counter()
        self._end = self._begin

    def stop(self) -> None:
        self._end = perf_counter()

    def seconds(self) -> float:
        return self._end - self._begin


class Host:
    """A CPU with as much memory as a test wants."""

    def __init__(self, memory: int = 10**12) -> None:
        self.device = torch.device("cpu")
        self._memory = memory

    @property
    def name(self) -> str:
        return "CPU"

    def free_bytes(self) -> int:
        return self._memory

    def used_bytes(self) -> int:
        return 0

    def peak_bytes(self) -> int:
        return 0

    def read_bandwidth(self) -> float:
        return BANDWIDTH

    def synchronize(self) -> None:
        pass

    def clock(self) -> HostClock:
        return HostClock()


@pytest.fixture(autouse=True)
def small_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = spec_from_config(open_checkpoint("tiny").config)

    def load(name: str) -> ModelSpec:
        return replace(tiny, vocab_size=96, layers=tiny.layers[:4], vision=None)

    monkeypatch.setattr(subject, "load_shape", load)
    monkeypatch.setattr(request, "load_shape", load)
    torch.set_num_threads(1)


def asked(**changes: Any) -> BenchRequest:
    return BenchRequest(SHAPE, **{"context": 6, "steps": 2, "repeats": 2, **changes})


def test_every_cell_is_measured_in_turns_and_says_that_it_was_simulated() -> None:
    lines: list[str] = []
    wanted = asked(batches=(1, 2), draft_tokens=(0, 2), accept_length=2.5, draft_rows=32)
    result = run.run_bench(wanted, Host(), lines.append)
    assert [(each.cell.batch, each.cell.draft_tokens) for each in result.cells] == [
        (1, 0),
        (1, 2),
        (2, 0),
        (2, 2),
    ]
    for each in result.cells:
        assert len(each.samples) == 2
        assert all(sample.passes == 2 * each.cell.batch for sample in each.samples)
        assert ("SIMULATED accept length 2.50" in each.line) == (each.cell.draft_tokens > 0)
        if not each.cell.draft_tokens:
            assert each.accept_length == 1.0
    assert sum("SIMULATED" in line for line in lines) == 2


def test_without_simulation_the_weights_decide() -> None:
    result = run.run_bench(asked(draft_tokens=(2,)), Host(), lambda line: None)
    assert "SIMULATED" not in result.cells[0].line
    assert 1.0 <= result.cells[0].accept_length <= 3.0


def test_the_record_holds_the_request_the_raw_samples_and_the_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "_hardware", lambda: {"gpu": "none"})
    monkeypatch.setenv(record.COMMIT_VARIABLE, "0123abcd")
    result = run.run_bench(asked(draft_tokens=(0,)), Host(), lambda line: None)
    content = json.loads(json.dumps(record.result_json(result, "draftproof bench")))
    assert content["acceptance"] == "as the weights give it"
    assert content["request"]["shape"] == SHAPE
    assert len(content["figures"][0]["samples"]) == 2
    assert content["kernels"]["rules"]["packed_linear"][0]["backend"] == "reference"
    assert content["commit"] == "0123abcd"


def test_a_fault_after_the_cells_leaves_their_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("the profiler does not answer")

    monkeypatch.setattr(record, "_hardware", lambda: {"gpu": "none"})
    monkeypatch.setattr(run, "kernel_table", broken)
    kept = tmp_path / "result.json"
    stages = run.bench_stages(asked(draft_tokens=(0,), kernels=True), Host(), lambda line: None)
    with pytest.raises(RuntimeError, match="does not answer"):
        record.write_as_it_grows(stages, kept, "draftproof bench --kernels")
    content = json.loads(kept.read_text())
    assert len(content["figures"][0]["samples"]) == 2
    assert content["kernel_tables"] == []


def test_microbenchmarks_cover_every_kind_of_work() -> None:
    result = run.run_bench(asked(draft_tokens=(1,), microbenchmarks=True), Host(), lambda line: None)
    assert {each.op for each in result.microbenchmarks} >= {
        "packed_linear",
        "route",
        "experts_step",
        "gated_delta_decode",
        "decode_attention",
    }
    assert all(each.nbytes > 0 and each.microseconds > 0 for each in result.microbenchmarks)


def test_a_head_at_8_bits_reads_less_and_drafts_all_the_same() -> None:
    wide, narrow = (
        run.run_bench(asked(draft_tokens=(2,), draft_8bit=narrow), Host(), lambda line: None)
        for narrow in (False, True)
    )
    assert narrow.cells[0].step_bytes < wide.cells[0].step_bytes
    assert narrow.cells[0].accept_length >= 1.0


def test_a_kernel_table_of_a_device_without_kernels_is_empty() -> None:
    stages = []
    for stage in run.bench_stages(asked(draft_tokens=(1,), kernels=True), Host(), lambda line: None):
        # A generator's mode would be its caller's, too.
        assert not torch.is_inference_mode_enabled()
        stages.append(stage)
    assert [len(stage.kernel_tables) for stage in stages] == [0, 1]
    assert [title for title, _ in stages[1].kernel_tables] == ["batch 1, NEXTN K=1"]
    assert stages[1].kernel_tables[0][1].rows == ()
    assert stages[1].cells == stages[0].cells


def test_too_little_memory_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*arguments: Any) -> None:
        raise AssertionError("weights were made")

    monkeypatch.setattr(subject, "load_synthetic", made)
    with pytest.raises(EnvironmentProblem, match=r"needs 2\.\d GB.*CUDA and graphs"):
        run.run_bench(asked(), Host(memory=10**6), lambda line: None)


def test_a_kernel_that_gives_nan_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, out: torch.Tensor, **rest: Any) -> None:
        reference.packed_linear(*arguments, out=out, **rest)
        out[0, 0] = torch.nan

    monkeypatch.setattr(
        run,
        "kernels_for",
        lambda device, *rest: replace(kernels_for(device), packed_linear=broken),
    )
    with pytest.raises(EngineFault, match="packed_linear on cpu is wrong"):
        run.run_bench(asked(), Host(), lambda line: None)


def test_no_gpu_is_an_environment_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentProblem, match="no CUDA device"):
        place.Gpu()


def test_a_backend_may_be_asked_for_by_name() -> None:
    asked_for = parse_backend("route=triton")
    assert asked_for == ("route", Backend.TRITON)
    result = run.run_bench(
        asked(draft_tokens=(0,), backends=(("route", Backend.REFERENCE),)), Host(), lambda line: None
    )
    assert [rule.backend for rule in result.selection.rules["route"]] == [Backend.REFERENCE]


@pytest.mark.parametrize("text", ["route", "route=fast", "roots=triton", "=triton"])
def test_a_backend_that_there_is_not_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="names no op and backend"):
        parse_backend(text)
