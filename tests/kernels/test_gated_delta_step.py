"""The window step: whatever was drafted, rejected, padded or postponed, it equals one row at a time.

Every slot that a window does not name is full of NaN or a guard value and must stay so, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.gated_delta_step import host, reference
from draftproof.kernels.gated_delta_step.reference import (
    GatedDeltaParameters,
    RecurrentState,
    WindowRows,
    settled_state,
)

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, KERNEL = 2, 4, 6, 5, 4
CONV_DIM = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
SLOTS, WINDOW = 6, 5
GUARD = 123.25


def make_parameters(seed: int = 0) -> GatedDeltaParameters:
    generator = torch.Generator().manual_seed(seed)
    return GatedDeltaParameters(
        convolution=torch.randn(CONV_DIM, KERNEL, generator=generator) * 0.5,
        negative_a=-torch.rand(VALUE_HEADS, generator=generator).mul(2).exp(),
        dt_bias=torch.randn(VALUE_HEADS, generator=generator) - 2,
        norm=1 + 0.1 * torch.randn(VALUE_DIM, generator=generator),
        norm_epsilon=1e-6,
        num_key_heads=KEY_HEADS,
        key_head_dim=KEY_DIM,
    )


PARAMETERS = make_parameters()


class Form:
    """The implementation under test; hypothesis cannot take it from a fixture of each test."""

    module: ModuleType = reference


@pytest.fixture(autouse=True, params=[reference, host], ids=["reference", "host"], scope="module")
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    Form.module = request.param
    yield
    Form.module = reference


@dataclass(frozen=True)
class Rows:
    """Projected rows of a sequence: inputs [n, conv_dim], gate [n, heads, dim], a and b [n, heads]."""

    inputs: Tensor
    gate: Tensor
    a: Tensor
    b: Tensor

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.inputs[part], self.gate[part], self.a[part], self.b[part])


def random_rows(count: int, generator: torch.Generator) -> Rows:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return Rows(
        normal(count, CONV_DIM),
        normal(count, VALUE_HEADS, VALUE_DIM),
        normal(count, VALUE_HEADS),
        normal(count, VALUE_HEADS),
    )


def by_the_book(rows: Rows) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """One sequence from its beginning, one row and one head at a time, in float64.

    Returns:
        Outputs [n, value_dim of all heads]; recurrent state and convolution inputs after 0, 1, ... n rows.
    """
    weights = PARAMETERS
    state = torch.zeros(VALUE_HEADS, KEY_DIM, VALUE_DIM, dtype=torch.float64)
    past = [torch.zeros(CONV_DIM, dtype=torch.float64)] * (KERNEL - 1)
    states, pasts, outputs = [state], [torch.stack(past)], []
    for index in range(len(rows.inputs)):
        past.append(rows.inputs[index].double())
        mixed = sum(past[-KERNEL + tap] * weights.convolution[:, tap].double() for tap in range(KERNEL))
        mixed = mixed / (1 + torch.exp(-mixed))
        width = KEY_HEADS * KEY_DIM
        queries, keys = mixed[:width].view(KEY_HEADS, -1), mixed[width : 2 * width].view(KEY_HEADS, -1)
        values = mixed[2 * width :].view(VALUE_HEADS, -1)
        state = state.clone()
        heads = []
        for head in range(VALUE_HEADS):
            query, key = queries[head * KEY_HEADS // VALUE_HEADS], keys[head * KEY_HEADS // VALUE_HEADS]
            query = query / (query @ query + 1e-6).sqrt() * KEY_DIM**-0.5
            key = key / (key @ key + 1e-6).sqrt()
            step = torch.log1p(torch.exp(rows.a[index, head].double() + weights.dt_bias[head]))
            decayed = state[head] * torch.exp(weights.negative_a[head] * step)
            beta = torch.sigmoid(rows.b[index, head].double())
            state[head] = decayed + torch.outer(key, beta * (values[head] - decayed.t() @ key))
            output = state[head].t() @ query
            normed = output / (output.square().mean() + 1e-6).sqrt() * weights.norm
            gate = rows.gate[index, head].double()
            heads.append(normed * gate / (1 + torch.exp(-gate)))
        states.append(state)
        pasts.append(torch.stack(past[-(KERNEL - 1) :]))
        outputs.append(torch.cat(heads))
    return torch.stack(outputs), states, pasts


def fresh_pools(slots: Sequence[int]) -> RecurrentState:
    """Pools of NaN, guards in the stash, zeros where a sequence begins."""
    recurrent = torch.full((SLOTS, VALUE_HEADS, KEY_DIM, VALUE_DIM), float("nan"))
    convolution = torch.full((SLOTS, KERNEL - 1, CONV_DIM), float("nan"))
    for slot in slots:
        recurrent[slot] = 0
        convolution[slot] = 0
    return RecurrentState(
        recurrent,
        convolution,
        torch.full((SLOTS, WINDOW, CONV_DIM), float("nan")),
        torch.full((SLOTS, WINDOW, VALUE_HEADS), GUARD),
        torch.full((SLOTS, WINDOW, VALUE_HEADS), float("nan")),
    )


def geometry(
    slots: Sequence[int], counts: Sequence[int], pending: Sequence[int], commits_all: bool
) -> WindowRows:
    width = max(counts, default=0)
    consecutive = list(slots) == list(range(slots[0], slots[0] + len(slots)))
    valid = torch.tensor([[row < count for row in range(width)] for count in counts])
    return WindowRows(
        slots=torch.tensor(slots),
        slot_range=slice(slots[0], slots[0] + len(slots)) if consecutive else None,
        pending=tuple(pending),
        row_counts=tuple(counts),
        valid=None if min(counts) == width else valid,
        commits_all=commits_all,
    )


def padded(rows: Sequence[Rows]) -> Rows:
    """A batch as wide as its longest member; padding is large, so that a leak shows."""
    width = max(len(one.inputs) for one in rows)

    def pad(tensors: list[Tensor]) -> Tensor:
        out = tensors[0].new_full((len(tensors), width, *tensors[0].shape[1:]), 1e3)
        for index, tensor in enumerate(tensors):
            out[index, : len(tensor)] = tensor
        return out

    return Rows(
        pad([one.inputs for one in rows]),
        pad([one.gate for one in rows]),
        pad([one.a for one in rows]),
        pad([one.b for one in rows]),
    )


def run(state: RecurrentState, window: WindowRows, rows: Sequence[Rows]) -> Tensor:
    batch = padded(rows)
    return Form.module.gated_delta_step(batch.inputs, batch.gate, batch.a, batch.b, PARAMETERS, state, window)


def settled(state: RecurrentState, slot: int, pending: int) -> tuple[Tensor, Tensor]:
    window = WindowRows(torch.tensor([slot]), slice(slot, slot + 1), (pending,), (0,), None, False)
    recurrent, convolution = settled_state(PARAMETERS, state, window)
    return recurrent[0], convolution[0]


def pools_of(state: RecurrentState) -> tuple[Tensor, ...]:
    return (state.recurrent, state.convolution, state.stash_inputs, state.stash_log_decay, state.stash_beta)


class Life:
    """Several sequences that share windows; checks every output, every state and every bystander."""

    def __init__(self, slots: Sequence[int], length: int, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.slots = list(slots)
        self.rows = {slot: random_rows(length, self.generator) for slot in slots}
        self.expected = {slot: by_the_book(self.rows[slot]) for slot in slots}
        self.done = dict.fromkeys(slots, 0)
        self.pending = dict.fromkeys(slots, 0)
        self.state = fresh_pools(slots)

    def window(
        self, members: Sequence[int], counts: Sequence[int], kept: Sequence[int], commits_all: bool
    ) -> None:
        """Run `counts` rows of some members; the first `kept` are right, the rest random drafts."""
        rows = []
        for slot, count, right in zip(members, counts, kept, strict=True):
            own = self.rows[slot][slice(self.done[slot], self.done[slot] + right)]
            wrong = random_rows(count - right, self.generator)
            parts = zip(vars(own).values(), vars(wrong).values(), strict=True)
            rows.append(Rows(*(torch.cat(pair) for pair in parts)))
        before = [pool.clone() for pool in pools_of(self.state)]
        outputs = run(
            self.state, geometry(members, counts, [self.pending[slot] for slot in members], commits_all), rows
        )
        for index, (slot, right) in enumerate(zip(members, kept, strict=True)):
            start = self.done[slot]
            wanted = self.expected[slot][0][start : start + right]
            torch.testing.assert_close(outputs[index, :right].double(), wanted, atol=1e-4, rtol=1e-4)
            self.done[slot] += right
            self.pending[slot] = 0 if commits_all else right
            self.check_state(slot)
        bystanders = [slot for slot in range(SLOTS) if slot not in members]
        for pool, old in zip(pools_of(self.state), before, strict=True):
            assert torch.equal(pool[bystanders].view(torch.int32), old[bystanders].view(torch.int32))

    def check_state(self, slot: int) -> None:
        recurrent, convolution = settled(self.state, slot, self.pending[slot])
        _, states, pasts = self.expected[slot]
        torch.testing.assert_close(recurrent.double(), states[self.done[slot]], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(convolution.double(), pasts[self.done[slot]], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("prompt", [1, 2, 3, 4, 7, 70])
def test_a_prompt_in_one_window_or_row_by_row(prompt: int) -> None:
    at_once = Life([2], prompt, seed=prompt)
    at_once.window([2], [prompt], [prompt], commits_all=True)
    one_by_one = Life([2], prompt, seed=prompt)
    for _ in range(prompt):
        one_by_one.window([2], [1], [1], commits_all=True)
    torch.testing.assert_close(
        at_once.state.recurrent[2], one_by_one.state.recurrent[2], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("accepted", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("then", ["verify", "plain", "prompt"])
def test_after_any_rejection_the_next_window_of_any_kind_is_right(accepted: int, then: str) -> None:
    life = Life([3], 40, seed=accepted)
    life.window([3], [6], [6], commits_all=True)
    life.window([3], [WINDOW], [1 + accepted], commits_all=False)
    if then == "verify":
        life.window([3], [3], [2], commits_all=False)
    elif then == "plain":
        life.window([3], [1], [1], commits_all=True)
    else:
        life.window([3], [20], [20], commits_all=True)
    life.window([3], [WINDOW], [WINDOW], commits_all=False)


def test_zero_draft_steps_between_accepted_ones() -> None:
    life = Life([0], 60, seed=5)
    life.window([0], [9], [9], commits_all=True)
    for accepted in [2, None, 1, None, 0, None] * 5:
        if accepted is None:
            life.window([0], [1], [1], commits_all=True)
        else:
            life.window([0], [3], [1 + accepted], commits_all=False)


def test_a_window_of_one_row_may_be_stashed_too() -> None:
    life = Life([1, 4], 20, seed=6)
    life.window([1], [3], [3], commits_all=True)
    life.window([4], [5], [5], commits_all=True)
    for _ in range(4):
        life.window([4, 1], [1, 1], [1, 1], commits_all=False)


def test_ragged_windows_ragged_pending_and_new_neighbours() -> None:
    """Sequences with nothing pending beside some with much; padded rows; slots out of order and apart."""
    life = Life([0, 2, 3, 5], 60, seed=7)
    life.window([5], [4], [4], commits_all=True)
    life.window([5], [WINDOW], [WINDOW], commits_all=False)
    life.window([2], [1], [1], commits_all=True)
    life.window([5, 2], [1, 4], [1, 2], commits_all=False)
    life.window([3], [11], [11], commits_all=True)
    life.window([2, 3, 5], [2, 5, 1], [1, 5, 1], commits_all=False)
    life.window([5, 3, 2], [3, 1, 2], [3, 1, 2], commits_all=True)
    life.window([0], [2], [2], commits_all=True)
    life.window([0, 2, 3, 5], [5, 1, 3, 2], [1, 1, 2, 2], commits_all=False)
    life.window([2, 3], [1, 2], [1, 1], commits_all=False)
    life.window([0, 5], [1, 1], [1, 1], commits_all=True)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_life(data: st.DataObject) -> None:
    slots = data.draw(st.permutations(range(SLOTS)), label="slots")[: data.draw(st.integers(1, 4))]
    life = Life(slots, 80, seed=data.draw(st.integers(0, 999), label="seed"))
    for _ in range(data.draw(st.integers(1, 10), label="windows")):
        members = data.draw(st.lists(st.sampled_from(slots), min_size=1, unique=True), label="members")
        commits_all = data.draw(st.booleans(), label="commits all")
        most = 9 if commits_all else WINDOW
        counts = [
            data.draw(st.integers(1, min(most, 80 - life.done[slot])), label="rows") for slot in members
        ]
        kept = counts if commits_all else [data.draw(st.integers(1, count), label="kept") for count in counts]
        life.window(members, counts, kept, commits_all)
        if max(life.done.values()) > 70:
            break


def test_a_window_that_will_be_judged_changes_no_committed_state_when_nothing_is_pending() -> None:
    life = Life([1], 10, seed=8)
    life.window([1], [4], [4], commits_all=True)
    recurrent, convolution = life.state.recurrent.clone(), life.state.convolution.clone()
    life.window([1], [4], [2], commits_all=False)
    assert torch.equal(life.state.recurrent[1], recurrent[1])
    assert torch.equal(life.state.convolution[1], convolution[1])


def test_reading_the_settled_state_writes_nothing() -> None:
    life = Life([1], 10, seed=9)
    life.window([1], [4], [3], commits_all=False)
    before = [pool.clone() for pool in pools_of(life.state)]
    recurrent, _ = settled(life.state, 1, 3)
    recurrent.fill_(7.0)
    for pool, old in zip(pools_of(life.state), before, strict=True):
        assert torch.equal(pool[1].view(torch.int32), old[1].view(torch.int32))


def test_bfloat16_inputs_give_bfloat16_outputs_and_a_float32_state() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = padded([random_rows(3, generator)])
    state = fresh_pools([0])
    low = RecurrentState(
        state.recurrent, state.convolution.bfloat16(), state.stash_inputs.bfloat16(), *pools_of(state)[3:]
    )
    parameters = replace(PARAMETERS, convolution=PARAMETERS.convolution.bfloat16())
    output = Form.module.gated_delta_step(
        *(tensor.bfloat16() for tensor in (rows.inputs, rows.gate, rows.a, rows.b)),
        parameters,
        low,
        geometry([0], [3], [0], True),
    )
    assert output.dtype == torch.bfloat16
    assert low.recurrent.dtype == torch.float32
    exact = run(fresh_pools([0]), geometry([0], [3], [0], True), [Rows(*(t[0] for t in vars(rows).values()))])
    torch.testing.assert_close(output.float(), exact, atol=0.1, rtol=0.1)
