"""A kernel that gives NaN or wrong numbers stops the start, with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape, sample_of
from draftproof.bench.subject import load_synthetic
from draftproof.device.checks.called import CheckedCall, CheckSubject
from draftproof.device.checks.choices import check_choices
from draftproof.device.checks.mixers import check_mixers
from draftproof.device.checks.products import check_products
from draftproof.device.checks.prompts import check_prompts
from draftproof.device.self_check import self_check
from draftproof.device.shapes import StepShape, representative_shapes
from draftproof.device.weights import DeviceModel, device_model
from draftproof.errors import EngineFault
from draftproof.kernels.advance import reference as advance
from draftproof.kernels.decode_attention import reference as attention
from draftproof.kernels.experts_step import reference as experts
from draftproof.kernels.gated_delta import chunked
from draftproof.kernels.gated_delta_decode import reference as gated_delta
from draftproof.kernels.packed_linear import reference as linear
from draftproof.kernels.paged_attention import fused
from draftproof.kernels.row_sampling import reference as sampling
from draftproof.kernels.select import StepKernels, kernels_for
from draftproof.runtime.state_store import StateSizes

CPU = torch.device("cpu")
SHAPES = (StepShape(1, 0), StepShape(2, 1))
SIZES = StateSizes(slots=2, pages=3, page_size=16, max_positions=240, window_rows=2)

Definition = Callable[..., Any]
Check = Callable[[CheckSubject], Iterator[CheckedCall]]


@pytest.fixture(scope="module")
def model() -> DeviceModel:
    spec = sample_of(load_shape("qwen3.5-35b-a3b"))
    loaded = load_synthetic(spec, layout_named("nvfp4-3.6"), SIZES.max_positions, CPU)
    with torch.inference_mode():
        return device_model(loaded.target, loaded.head)


@pytest.fixture
def kernels() -> StepKernels:
    return kernels_for(CPU)


def check(check: Check, kernels: StepKernels, model: DeviceModel) -> None:
    """One kind of work alone."""
    with torch.inference_mode():
        list(check(CheckSubject(kernels, model, SHAPES, SIZES)))


def test_definitions_agree_with_themselves_on_every_kind_of_work(
    kernels: StepKernels, model: DeviceModel
) -> None:
    calls = self_check(kernels, model, SHAPES, SIZES)
    assert max(call.error for call in calls) < 0.02
    subjects = " ".join(call.subject for call in calls)
    for kind in ("fp8 [", "bf16 [", "nvfp4 [64, 2048]", "nvfp4, 2 of 512 x 2048, 4 rows"):
        assert kind in subjects
    assert {call.op for call in calls} == {
        "packed_linear",
        "experts_step",
        "gated_delta_decode",
        "decode_attention",
        "decode_attention_selected",
        "sample_and_advance",
        "advance",
        "sample_drafts",
        "unpack",
        "experts_of_prompt",
        "gated_delta_chunked",
        "paged_attention",
    }


@pytest.mark.parametrize(("factor", "words"), [(float("nan"), "nan"), (1.5, r"error \d")])
def test_a_wrong_product_is_named(
    kernels: StepKernels, model: DeviceModel, factor: float, words: str
) -> None:
    def broken(x: Tensor, matrix: Any, *, out: Tensor, **rest: Any) -> None:
        linear.packed_linear(x, matrix, out=out, **rest)
        if matrix.rows == 64:
            out[0, 3] *= factor

    with pytest.raises(
        EngineFault, match=rf"packed_linear on cpu is wrong: nvfp4 \[64, 2048\].*{words}"
    ) as caught:
        check(check_products, replace(kernels, packed_linear=broken), model)
    assert caught.value.exit_code == 1


def test_a_wrong_expert_is_named(kernels: StepKernels, model: DeviceModel) -> None:
    def broken(residual: Tensor, *rest: Any) -> None:
        before = residual.clone()
        experts.experts_step(residual, *rest)
        residual.copy_(before + (residual - before) * 1.5)

    with pytest.raises(EngineFault, match="experts_step on cpu is wrong"):
        check(check_products, replace(kernels, experts_step=broken), model)


def forgetful(projected: Tensor, columns: Any, parameters: Any, state: Any, *rest: Any) -> None:
    """A state that stays as it was."""
    before = state.recurrent.clone()
    gated_delta.gated_delta_decode(projected, columns, parameters, state, *rest)
    state.recurrent.copy_(before)


def without_the_past(projected: Tensor, parameters: Any, keys: Tensor, *rest: Any, **named: Any) -> None:
    """Keys of old positions count for nothing."""
    kept = keys.clone()
    keys.zero_()
    attention.decode_attention(projected, parameters, keys, *rest, **named)
    keys.copy_(torch.where(keys == 0, kept, keys))


def of_the_last_row(
    projected: Tensor,
    parameters: Any,
    keys: Tensor,
    values: Tensor,
    geometry: Any,
    row_index: Tensor,
    scratch: Any,
    *,
    out: Tensor,
) -> None:
    """Always the window's last row."""
    rows = torch.full_like(row_index, geometry.rows - 1)
    attention.decode_attention_selected(projected, parameters, keys, values, geometry, rows, scratch, out=out)


def one_position_late(
    logits: Tensor, geometry: Any, slots: Any, choice: Any, scratch: Any, sampled: Tensor, *rest: Any
) -> None:
    """The noise of the next position."""
    moved = replace(geometry, lengths=geometry.lengths + 1)
    sampling.sample_rows(logits, moved, slots, choice, scratch, sampled)
    advance.advance(sampled, geometry.slots, *rest)


def without_end(*given: Any) -> None:
    """The sequence never comes nearer to its limit."""
    progress = given[6]
    remaining = progress.remaining.clone()
    advance.sample_and_advance(*given)
    progress.remaining.copy_(remaining)


def of_another_vocabulary(logits: Tensor, *rest: Any) -> None:
    """Ids of the draft head's rows are taken for tokens."""
    geometry, slots, choice, scratch, _, inputs, place = rest
    sampling.sample_drafts(logits, geometry, slots, choice, scratch, None, inputs, place)


def unweighted(rows: Tensor, chosen: Tensor, weights: Tensor, *rest: Any) -> Tensor:
    return experts.experts_of_prompt(rows, chosen, torch.ones_like(weights), *rest)


@pytest.mark.parametrize(
    ("checks", "op", "broken", "named"),
    [
        (check_mixers, "gated_delta_decode", forgetful, "gated_delta_decode"),
        (check_mixers, "decode_attention", without_the_past, "decode_attention"),
        (check_mixers, "decode_attention_selected", of_the_last_row, "decode_attention_selected"),
        (check_choices, "sample_and_advance", one_position_late, "sample_and_advance"),
        (check_choices, "sample_and_advance", without_end, "advance"),
        (check_choices, "sample_drafts", of_another_vocabulary, "sample_drafts"),
        (check_prompts, "experts_of_prompt", unweighted, "experts_of_prompt"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_op_is_named(
    kernels: StepKernels, model: DeviceModel, checks: Check, op: str, broken: Definition, named: str
) -> None:
    with pytest.raises(EngineFault, match=f"kernel {named} on cpu is wrong"):
        check(checks, replace(kernels, **{op: broken}), model)  # type: ignore[arg-type]  # mypy: any field


def test_a_scan_that_takes_a_view_for_its_memory_is_named(
    kernels: StepKernels, model: DeviceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_it_lies(solved: Tensor, pairs: Tensor, query: Tensor, *rest: Tensor) -> Tensor:
        lying = query.transpose(2, 3).contiguous().view_as(query)
        return chunked.scan_chunks(solved, pairs, lying, *rest)

    monkeypatch.setattr(chunked, "_scan_for", lambda key, value: as_it_lies)
    with pytest.raises(EngineFault, match="kernel gated_delta_chunked on cpu is wrong"):
        check(check_prompts, kernels, model)


def test_a_wrong_attention_of_prompts_is_named(
    kernels: StepKernels, model: DeviceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fused.paged_attention
    monkeypatch.setattr(fused, "paged_attention", lambda *given: right(*given).flip(1))
    with pytest.raises(EngineFault, match="kernel paged_attention on cpu is wrong"):
        check(check_prompts, kernels, model)


def test_what_is_checked_is_what_runs() -> None:
    assert representative_shapes(StepShape(1, 0)) == (StepShape(1, 0),)
    assert representative_shapes(StepShape(6, 3)) == (
        StepShape(1, 0),
        StepShape(1, 3),
        StepShape(8, 0),
        StepShape(8, 3),
    )
