"""The sampler: what each row sees, and that nothing else decides its token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from draftproof.errors import EngineFault, LogitsFault, UsageError
from draftproof.runtime.sampler import (
    SequenceContext,
    SequenceRows,
    apply_context,
    sample_drafts,
    sample_rows,
    token_logprobs,
)
from draftproof.runtime.sampling import SamplingParameters

VOCABULARY = 24
EOS = 3


def context(
    parameters: SamplingParameters | None = None,
    prompt: Sequence[int] = (1, 2, 2),
    output: Sequence[int] = (),
) -> SequenceContext:
    sequence = SequenceContext(parameters or SamplingParameters(), prompt, (EOS,), VOCABULARY)
    sequence.commit(output)
    return sequence


def random_logits(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


def processed(logits: Tensor, rows: SequenceRows) -> Tensor:
    changed = logits.clone()
    apply_context(changed, rows)
    return changed


# Greedy


def test_greedy_takes_the_largest_logit_and_of_equals_the_lowest_id() -> None:
    logits = torch.zeros(3, VOCABULARY)
    logits[0, 7] = 1.0
    logits[1, [20, 5, 9]] = 2.0
    tokens = sample_rows(
        logits,
        [
            SequenceRows(context(), (7, 5)),
        ],
    )
    assert tokens.tolist() == [7, 5, 0]
    assert tokens.dtype == torch.int64


def test_greedy_ties_go_to_the_lowest_id_with_processing_too() -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, [20, 9]] = 2.0
    biased = context(SamplingParameters(logit_bias=((11, 2.0),)))
    assert sample_rows(logits, [SequenceRows(biased)]).tolist() == [9]


# What acts on the logits, and in which order


def test_repetition_penalty_counts_prompt_and_output_and_the_others_output_only() -> None:
    parameters = SamplingParameters(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    logits = torch.zeros(1, VOCABULARY)
    logits[0, :6] = torch.tensor([4.0, 4.0, -4.0, 4.0, -4.0, 0.0])
    row = SequenceRows(context(parameters, prompt=(1, 2), output=(3, 4, 4)))
    expected = torch.zeros(VOCABULARY)
    expected[:6] = torch.tensor(
        [
            4.0,  # never seen
            4.0 / 2,  # prompt
            -4.0 * 2,  # prompt, negative
            4.0 / 2 - 0.25 - 0.5,  # once in the output
            -4.0 * 2 - 2 * 0.25 - 0.5,  # twice in the output, negative
            0.0,
        ]
    )
    assert torch.equal(processed(logits, row)[0], expected)


def test_row_j_sees_the_drafts_before_it_and_no_others() -> None:
    parameters = SamplingParameters(frequency_penalty=1.0, repetition_penalty=2.0)
    logits = torch.full((4, VOCABULARY), 8.0)
    row = SequenceRows(context(parameters, prompt=(1,), output=(6,)), drafts=(6, 9, 9))
    changed = processed(logits, row)
    assert changed[:, 1].tolist() == [4.0] * 4
    assert changed[:, 6].tolist() == [3.0, 2.0, 2.0, 2.0]
    assert changed[:, 9].tolist() == [8.0, 8.0, 3.0, 2.0]
    assert (changed[:, 10:] == 8.0).all()


def test_bias_is_added_and_endings_are_masked_after_it() -> None:
    parameters = SamplingParameters(logit_bias=((EOS, 100.0), (7, -5.0)), min_tokens=2, stop_token_ids=(8,))
    logits = torch.zeros(4, VOCABULARY)
    changed = processed(logits, SequenceRows(context(parameters), drafts=(1, 1, 1)))
    assert changed[:, 7].tolist() == [-5.0] * 4
    assert changed[:, EOS].tolist() == [-math.inf, -math.inf, 100.0, 100.0]
    assert changed[:, 8].tolist() == [-math.inf, -math.inf, 0.0, 0.0]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_the_first_possible_ending_has_min_tokens_before_it(ignore_eos: bool) -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, EOS] = 10.0
    sequence = context(SamplingParameters(min_tokens=7, ignore_eos=ignore_eos))
    output = []
    for _ in range(9):
        output.append(int(sample_rows(logits, [SequenceRows(sequence)])))
        sequence.commit(output[-1:])
    assert output.index(EOS) == 7


def test_temperature_acts_after_penalties_and_bias() -> None:
    """A bias of 100 decides at any temperature that would otherwise spread the draws."""
    hot = SamplingParameters(temperature=2.0, logit_bias=((17, 100.0),), seed=4)
    assert sample_rows(torch.zeros(1, VOCABULARY), [SequenceRows(context(hot))]).tolist() == [17]


def test_top_k_of_one_is_greedy_whatever_the_temperature() -> None:
    logits = random_logits(5)
    rows = SequenceRows(context(SamplingParameters(temperature=5.0, top_k=1)), drafts=(1, 2, 3, 4))
    assert torch.equal(sample_rows(logits, [rows]), logits.argmax(1))


# Independence

PARAMETERS = st.builds(
    SamplingParameters,
    temperature=st.sampled_from([0.0, 0.0, 0.6, 1.0, 3.0]),
    top_k=st.sampled_from([0, -1, 1, 5, 100]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.2, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.8, -0.3]),
    min_tokens=st.integers(0, 5),
    logit_bias=st.sampled_from([(), ((5, 1.5), (EOS, 2.0))]),
    stop_token_ids=st.sampled_from([(), (9,)]),
    seed=st.integers(0, 3),
)
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=4)
SEQUENCES = st.builds(
    lambda parameters, prompt, output, drafts: SequenceRows(
        context(parameters, prompt, output), tuple(drafts)
    ),
    PARAMETERS,
    TOKENS.map(lambda tokens: [0, *tokens]),
    TOKENS,
    TOKENS,
)


@given(st.lists(SEQUENCES, min_size=1, max_size=4), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_sequence_is_sampled_alike_alone_and_in_any_batch(batch: list[SequenceRows], seed: int) -> None:
    logits = random_logits(sum(rows.count for rows in batch), seed)
    untouched = logits.clone()
    together = sample_rows(logits, batch).split([rows.count for rows in batch])
    assert torch.equal(logits, untouched)
    for rows, own, tokens in zip(batch, logits.split([rows.count for rows in batch]), together, strict=True):
        assert torch.equal(sample_rows(own, [rows]), tokens)


@given(PARAMETERS, TOKENS, TOKENS, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_window_samples_what_one_row_at_a_time_samples(
    parameters: SamplingParameters, output: list[int], drafts: list[int], seed: int
) -> None:
    """Row j of a window is the only row of a sequence that has committed the first j drafts, bit for bit."""
    logits = random_logits(len(drafts) + 1, seed)
    rows = SequenceRows(context(parameters, output=output), drafts)
    window, changed = sample_rows(logits, [rows]), processed(logits, rows)
    step_by_step = context(parameters, output=output)
    for row in range(len(drafts) + 1):
        single = SequenceRows(step_by_step)
        assert torch.equal(processed(logits[row : row + 1], single)[0], changed[row])
        assert sample_rows(logits[row : row + 1], [single]).tolist() == [window[row].item()]
        chained = SequenceRows(context(parameters, output=output), drafts[:row], first_row=row)
        assert chained.count == 1
        assert torch.equal(processed(logits[row : row + 1], chained)[0], changed[row])
        assert sample_rows(logits[row : row + 1], [chained]).tolist() == [window[row].item()]
        step_by_step.commit(drafts[row : row + 1])


def test_seed_and_position_are_the_only_sources_of_noise() -> None:
    logits = random_logits(1).expand(8, VOCABULARY)

    def text(seed: int, prompt: Sequence[int] = (1, 2, 2)) -> list[int]:
        parameters = SamplingParameters(temperature=1.5, seed=seed)
        return sample_rows(logits, [SequenceRows(context(parameters, prompt), drafts=(0,) * 7)]).tolist()

    assert text(1) == text(1)
    assert text(1) != text(2)
    assert text(1) == text(1, prompt=(5, 6, 7))
    assert text(1)[1:] == text(1, prompt=(5, 6, 7, 8))[:-1]
    assert text(-1) == text(2**64 - 1)


def test_two_requests_without_a_seed_differ() -> None:
    logits = random_logits(1).expand(16, VOCABULARY)
    rows = [SequenceRows(context(SamplingParameters(temperature=2.0)), drafts=(0,) * 7) for _ in range(2)]
    first, second = sample_rows(logits, rows).split(8)
    assert first.tolist() != second.tolist()


def test_a_drafter_that_shares_the_noise_agrees_as_often_as_the_coupling_promises() -> None:
    """Agreement of two Gumbel-max draws with one noise is at least (1 - TV) / (1 + TV)."""
    target, drafter = torch.tensor([0.6, 0.2, 0.1, 0.1]), torch.tensor([0.7, 0.2, 0.05, 0.05])
    draws = 4000
    sequence = SequenceContext(SamplingParameters(temperature=1.0, seed=5), (0,), (), 4)
    rows = [SequenceRows(sequence, drafts=(0,) * (draws - 1))]
    own = sample_rows(target.log().expand(draws, 4), rows)
    proposed = sample_rows(drafter.log().expand(draws, 4), rows)
    distance = (target - drafter).abs().sum().item() / 2
    agreement = (own == proposed).double().mean().item()
    assert agreement > (1 - distance) / (1 + distance) - 0.02
    observed, expected = own.bincount(minlength=4).double(), target.double() * draws
    assert ((observed - expected) ** 2 / expected).sum().item() < 16.27  # 3 degrees of freedom, p above 0.001


# Refusals


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_choice_are_named(bad: float, temperature: float) -> None:
    logits = random_logits(4)
    logits[2, 5] = bad
    logits[3] = -math.inf
    rows = SequenceRows(context(SamplingParameters(temperature=temperature)), drafts=(1, 2, 3))
    with pytest.raises(LogitsFault, match=r"rows \[2, 3\]") as caught:
        sample_rows(logits, [rows])
    assert caught.value.rows == (2, 3)
    assert isinstance(caught.value, EngineFault)


def test_a_row_that_processing_leaves_without_a_token_is_named_by_its_place_in_the_step() -> None:
    logits = torch.full((3, VOCABULARY), -math.inf)
    logits[:, EOS] = 1.0
    batch = [SequenceRows(context()), SequenceRows(context(SamplingParameters(min_tokens=1)), drafts=(EOS,))]
    with pytest.raises(LogitsFault) as caught:
        sample_rows(logits, batch)
    assert caught.value.rows == (1,)


@pytest.mark.parametrize(
    "parameters",
    [SamplingParameters(logit_bias=((VOCABULARY, 1.0),)), SamplingParameters(stop_token_ids=(VOCABULARY,))],
)
def test_tokens_outside_the_vocabulary_are_refused(parameters: SamplingParameters) -> None:
    with pytest.raises(
        UsageError, match=f"token {VOCABULARY} is not in the vocabulary of {VOCABULARY} tokens"
    ):
        context(parameters)


def test_as_many_rows_of_logits_as_the_windows_have() -> None:
    with pytest.raises(ValueError, match="3 rows of logits for windows of 2 rows"):
        sample_rows(random_logits(3), [SequenceRows(context(), drafts=(1,))])


# Log-probabilities


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = random_logits(3)
    tokens = torch.tensor([4, 0, 23])
    report = token_logprobs(logits, tokens, 5)
    expected = logits.double().log_softmax(1)
    torch.testing.assert_close(report.chosen.double(), expected[range(3), tokens], rtol=0, atol=1e-5)
    for row in range(3):
        keys = [(-expected[row, token].item(), token) for token in range(VOCABULARY)]
        order = [token for _, token in sorted(keys)]
        assert report.top_token_ids[row].tolist() == order[:5]
        assert report.ranks[row].item() == order.index(int(tokens[row])) + 1
        torch.testing.assert_close(report.top[row].double(), expected[row, order[:5]], rtol=0, atol=1e-5)


def test_most_likely_tokens_of_equal_logits_come_by_rising_id() -> None:
    logits = torch.tensor([[0.0, -0.0, 1.0, -1.0, 1.0, -math.inf, -1.0, 0.0]])
    report = token_logprobs(logits, torch.tensor([7]), 8)
    assert report.top_token_ids.tolist() == [[2, 4, 0, 1, 7, 3, 6, 5]]
    assert report.ranks.tolist() == [3]


def test_logprobs_of_no_alternatives_and_of_more_than_there_are() -> None:
    logits = random_logits(2)
    assert token_logprobs(logits, torch.tensor([1, 2]), 0).top_token_ids.shape == (2, 0)
    assert token_logprobs(logits, torch.tensor([1, 2]), 1000).top.shape == (2, VOCABULARY)


def test_a_rows_logprobs_do_not_depend_on_the_batch() -> None:
    logits = torch.randn(4, 40_003, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([1, 2, 3, 40_002])
    together = token_logprobs(logits, tokens, 3)
    for row in range(4):
        alone = token_logprobs(logits[row : row + 1], tokens[row : row + 1], 3)
        assert torch.equal(alone.chosen[0], together.chosen[row])
        assert torch.equal(alone.top[0], together.top[row])


# Constraints


class Alternating:
    """Even and odd tokens in turns, ends at any time; remembers what it was given."""

    is_active = True
    failure = None

    def __init__(self) -> None:
        self.committed: list[int] = []

    def allowed(self, drafts: Sequence[int], first_row: int) -> list[NDArray[np.bool_] | None]:
        masks: list[NDArray[np.bool_] | None] = []
        for row in range(first_row, len(drafts) + 1):
            mask = np.arange(VOCABULARY) % 2 == (len(self.committed) + row) % 2
            mask[EOS] = True
            masks.append(mask)
        return masks

    def commit(self, token_ids: Sequence[int]) -> None:
        self.committed.extend(token_ids)


class Only(Alternating):
    """Some tokens and no others."""

    def __init__(self, *token_ids: int) -> None:
        super().__init__()
        self._token_ids = list(token_ids)

    def allowed(self, drafts: Sequence[int], first_row: int) -> list[NDArray[np.bool_] | None]:
        mask = np.zeros(VOCABULARY, dtype=np.bool_)
        mask[self._token_ids] = True
        return [mask] * (len(drafts) + 1 - first_row)


def constrained(constraint: Alternating, parameters: SamplingParameters | None = None) -> SequenceContext:
    return SequenceContext(parameters or SamplingParameters(), (1, 2), (EOS,), VOCABULARY, constraint)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_row_is_chosen_from_what_its_drafts_leave(temperature: float) -> None:
    logits = random_logits(6)
    logits[:, EOS] = -20.0
    parameters = SamplingParameters(temperature=temperature, seed=3, top_k=3)
    sequence = constrained(Alternating(), parameters)
    whole = sample_rows(logits, [SequenceRows(context()), SequenceRows(sequence, (4, 5, 6, 7))])
    assert (whole[1:] % 2).tolist() == [0, 1, 0, 1, 0]
    last = sample_rows(logits[5:], [SequenceRows(sequence, (4, 5, 6, 7), first_row=4)])
    assert last.tolist() == whole[5:].tolist()
    for token in (4, 5, 6, 7):
        sequence.commit((token,))
    assert sample_rows(logits[5:], [SequenceRows(sequence)]).tolist() == whole[5:].tolist()


def test_a_constraint_is_moved_by_commits_alone() -> None:
    constraint = Alternating()
    sequence = constrained(constraint)
    sample_rows(random_logits(3), [SequenceRows(sequence, (4, 5))])
    assert constraint.committed == []
    sequence.commit((8, 9))
    assert constraint.committed == [8, 9]


def test_a_constraint_that_limits_nothing_now_is_not_asked() -> None:
    constraint = Only()
    constraint.is_active = False
    sequence = constrained(constraint)
    assert sequence.is_plain
    logits = random_logits(1)
    assert sample_rows(logits, [SequenceRows(sequence)]).tolist() == logits.argmax(1).tolist()


def test_a_row_whose_mask_is_none_is_free_beside_others() -> None:
    class Half(Only):
        def allowed(self, drafts: Sequence[int], first_row: int) -> list[NDArray[np.bool_] | None]:
            return [None, *super().allowed(drafts, first_row)[1:]]

    logits = random_logits(2)
    tokens = sample_rows(logits, [SequenceRows(constrained(Half(9)), (1,))])
    assert tokens.tolist() == [int(logits[0].argmax()), 9]


def test_bias_cannot_bring_back_what_is_not_allowed() -> None:
    biased = SamplingParameters(logit_bias=((7, 100.0),))
    assert sample_rows(random_logits(1), [SequenceRows(constrained(Only(9), biased))]).tolist() == [9]


def test_min_tokens_gives_way_where_an_answer_can_only_end() -> None:
    """It holds back an end while anything else is allowed, and cannot lengthen a finished answer."""
    parameters = SamplingParameters(min_tokens=5, stop_token_ids=(8,))
    logits = torch.zeros(1, VOCABULARY)
    logits[0, EOS] = 10.0
    assert sample_rows(logits, [SequenceRows(constrained(Only(EOS, 9), parameters))]).tolist() == [9]
    assert sample_rows(logits, [SequenceRows(constrained(Only(EOS, 8), parameters))]).tolist() == [EOS]
    assert sample_rows(logits, [SequenceRows(constrained(Only(EOS), parameters))]).tolist() == [EOS]


def test_a_row_that_may_have_no_token_is_at_fault_and_no_other() -> None:
    windows = [SequenceRows(context()), SequenceRows(constrained(Only()))]
    with pytest.raises(LogitsFault) as caught:
        sample_rows(random_logits(2), windows)
    assert caught.value.rows == (1,)


def test_a_draft_is_chosen_like_a_token_and_costs_no_request_its_answer() -> None:
    sound = [SequenceRows(context()), SequenceRows(constrained(Only(9)))]
    logits = random_logits(2)
    assert sample_drafts(logits, sound).tolist() == sample_rows(logits, sound).tolist()
    logits[0, 3] = math.nan
    for windows in (sound, [sound[1], SequenceRows(constrained(Only()))]):
        assert all(0 <= token < VOCABULARY for token in sample_drafts(logits, windows).tolist())


@pytest.mark.parametrize("allowed", [1, 3, 150, 299, 300])
def test_masks_of_any_density(allowed: int) -> None:
    mask = np.zeros(300, dtype=np.bool_)
    mask[np.random.default_rng(allowed).choice(300, allowed, replace=False)] = True

    class Dense(Alternating):
        def allowed(self, drafts: Sequence[int], first_row: int) -> list[NDArray[np.bool_] | None]:
            return [None, mask]

    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(allowed))
    expected = logits.clone()
    expected[1, torch.from_numpy(~mask)] = -math.inf
    sequence = SequenceContext(SamplingParameters(), (1,), (EOS,), 300, Dense())
    assert torch.equal(processed(logits, SequenceRows(sequence, (1,))), expected)
