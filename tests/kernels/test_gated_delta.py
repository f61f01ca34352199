"""The gated delta rule: its definition, and the two faster forms that must give the same for every size."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.gated_delta.chunked import gated_delta_chunked
from draftproof.kernels.gated_delta.reference import BLOCK_ROWS, gated_delta, gated_delta_blocked


class Inputs(NamedTuple):
    """Arguments of the rule, without `commit_rows`."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    beta: Tensor
    state: Tensor

    def rows(self, part: slice) -> Inputs:
        """The same run cut to some rows."""
        return Inputs(*(tensor[:, part] for tensor in self[:5]), self.state)


def random_inputs(
    seed: int, batch: int, rows: int, heads: int = 3, key_dim: int = 5, value_dim: int = 7
) -> Inputs:
    """Normalised keys and queries; decays from almost none to an instant, betas from 0 to 1."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return Inputs(
        query=torch.nn.functional.normalize(normal(batch, rows, heads, key_dim), dim=-1) * key_dim**-0.5,
        key=torch.nn.functional.normalize(normal(batch, rows, heads, key_dim), dim=-1),
        value=normal(batch, rows, heads, value_dim),
        log_decay=-torch.exp(2 * normal(batch, rows, heads) - 2),
        beta=torch.sigmoid(2 * normal(batch, rows, heads)),
        state=normal(batch, heads, key_dim, value_dim),
    )


RULES = [gated_delta, gated_delta_blocked, gated_delta_chunked]


def by_the_book(inputs: Inputs) -> tuple[Tensor, list[Tensor]]:
    """S <- a (I - b k k^T) S + b k v^T, o = S^T q, a head at a time in float64; the state after every row."""
    query, key, value, log_decay, beta, state = (tensor.double() for tensor in inputs)
    batch, rows, heads, key_dim = key.shape
    outputs = torch.zeros_like(value)
    states = [state]
    for row in range(rows):
        state = state.clone()
        for sequence in range(batch):
            for head in range(heads):
                k, v = key[sequence, row, head], value[sequence, row, head]
                b, decay = beta[sequence, row, head], log_decay[sequence, row, head].exp()
                forget = torch.eye(key_dim, dtype=torch.float64) - b * torch.outer(k, k)
                state[sequence, head] = decay * (forget @ state[sequence, head]) + b * torch.outer(k, v)
                outputs[sequence, row, head] = state[sequence, head].t() @ query[sequence, row, head]
        states.append(state)
    return outputs, states


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("commit_rows", range(8))
def test_all_forms_follow_the_published_rule(rule, commit_rows: int) -> None:
    inputs = random_inputs(seed=commit_rows, batch=2, rows=7)
    expected, states = by_the_book(inputs)
    outputs, committed = rule(*inputs, commit_rows)
    torch.testing.assert_close(outputs.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(committed.double(), states[commit_rows], atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_blocks_equal_rows_for_every_length_and_commit(data: st.DataObject) -> None:
    rows = data.draw(
        st.one_of(st.integers(1, 150), st.sampled_from([1, 63, 64, 65, 127, 128, 129])), label="rows"
    )
    commit_rows = data.draw(st.one_of(st.integers(0, rows), st.just(rows)), label="commit_rows")
    inputs = random_inputs(data.draw(st.integers(0, 999)), data.draw(st.integers(1, 2)), rows)
    outputs, committed = gated_delta(*inputs, commit_rows)
    blocked_outputs, blocked_committed = gated_delta_blocked(*inputs, commit_rows)
    torch.testing.assert_close(blocked_outputs, outputs, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(blocked_committed, committed, atol=2e-5, rtol=1e-4)
    chunked_outputs, final = gated_delta_chunked(*inputs, rows)
    torch.testing.assert_close(chunked_outputs, outputs, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(final, gated_delta(*inputs, rows)[1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("split", [1, 2, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_a_run_can_be_cut_anywhere(rule, split: int) -> None:
    inputs = random_inputs(seed=split, batch=1, rows=BLOCK_ROWS + 6)
    whole, final = rule(*inputs, BLOCK_ROWS + 6)
    first, middle = rule(*inputs.rows(slice(0, split)), split)
    rest = inputs.rows(slice(split, None))._replace(state=middle)
    second, last = rule(*rest, BLOCK_ROWS + 6 - split)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(last, final, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_without_beta_and_decay_leaves_the_state_alone(rule) -> None:
    inputs = random_inputs(seed=1, batch=2, rows=9)
    idle = torch.tensor([0, 3, 8])
    inputs.beta[:, idle] = 0
    inputs.log_decay[:, idle] = 0
    busy = [row for row in range(9) if row not in idle.tolist()]
    expected_outputs, expected = gated_delta(
        *(tensor[:, busy] for tensor in inputs[:5]), inputs.state, len(busy)
    )
    outputs, committed = rule(*inputs, 9)
    torch.testing.assert_close(committed, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs[:, busy], expected_outputs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_the_given_state_is_not_changed_and_rows_past_the_commit_do_not_count(rule) -> None:
    inputs = random_inputs(seed=2, batch=1, rows=6)
    before = inputs.state.clone()
    _, committed = rule(*inputs, 4)
    assert torch.equal(inputs.state, before)
    inputs.value[:, 4:] = 1e6
    _, again = rule(*inputs, 4)
    torch.testing.assert_close(again, committed)
    _, nothing = rule(*inputs, 0)
    assert torch.equal(nothing, before)


@pytest.mark.parametrize("rule", RULES)
def test_strong_decay_over_a_whole_block_stays_finite(rule) -> None:
    inputs = random_inputs(seed=3, batch=1, rows=150)
    inputs.log_decay.fill_(-40.0)
    outputs, committed = rule(*inputs, 150)
    assert torch.isfinite(outputs).all()
    assert torch.isfinite(committed).all()
    slow, final = gated_delta(*inputs, 150)
    torch.testing.assert_close(outputs, slow, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(committed, final, atol=1e-5, rtol=1e-4)
