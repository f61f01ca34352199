"""Accepted, recovered and bonus tokens; where an output ends; and the statistics of it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.speculation.acceptance import (
    AcceptanceCounts,
    FinishReason,
    OutputEnd,
    TruncatedRun,
    truncate_emitted,
)

STOP = 99


@pytest.mark.parametrize(
    ("emitted", "output_count", "max_tokens", "min_tokens", "kept", "reason"),
    [
        # nothing ends it
        ([1, 2, 3], 0, None, 0, 3, None),
        ([1, 2, 3], 2, 6, 0, 3, None),
        ([], 2, 6, 0, 0, None),
        # a stop token is kept, what follows is not
        ([STOP], 0, None, 0, 1, FinishReason.STOP),
        ([1, STOP, 2, 3], 0, None, 0, 2, FinishReason.STOP),
        ([1, STOP, STOP], 0, None, 0, 2, FinishReason.STOP),
        # the limit
        ([1, 2, 3], 2, 5, 0, 3, FinishReason.LENGTH),
        ([1, 2, 3], 2, 4, 0, 2, FinishReason.LENGTH),
        ([1], 4, 4, 0, 0, FinishReason.LENGTH),
        # both in one run: the one that comes first, and the stop when they fall on the same token
        ([STOP, 20, 21, 22], 2, 5, 0, 1, FinishReason.STOP),
        ([1, 2, STOP], 2, 5, 0, 3, FinishReason.STOP),
        ([1, 2, 3, STOP], 2, 5, 0, 3, FinishReason.LENGTH),
        ([STOP], 4, 4, 0, 0, FinishReason.LENGTH),
        # stop tokens before min_tokens are ordinary tokens, and the first possible one has min_tokens before
        # it
        ([STOP, STOP, STOP, 1], 0, None, 2, 3, FinishReason.STOP),
        ([STOP, 1, 1], 0, None, 7, 3, None),
        ([STOP], 6, None, 7, 1, None),
        ([STOP], 7, None, 7, 1, FinishReason.STOP),
        ([STOP, STOP, STOP], 1, 3, 3, 2, FinishReason.LENGTH),
        ([STOP, STOP, STOP], 1, 3, 2, 2, FinishReason.STOP),
    ],
)
def test_where_a_run_ends_the_output(
    emitted: list[int],
    output_count: int,
    max_tokens: int | None,
    min_tokens: int,
    kept: int,
    reason: FinishReason | None,
) -> None:
    end = OutputEnd(frozenset({STOP}), max_tokens, min_tokens)
    assert truncate_emitted(emitted, output_count, end) == TruncatedRun(kept, reason)


@given(
    st.lists(st.sampled_from([1, STOP]), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.one_of(st.none(), st.integers(1, 14)),
    st.integers(0, 8),
)
def test_the_output_ends_at_the_same_token_in_runs_of_any_length(
    tokens: list[int], run_lengths: list[int], max_tokens: int | None, min_tokens: int
) -> None:
    end = OutputEnd(frozenset({STOP}), max_tokens, min_tokens)

    def generate(lengths: list[int]) -> tuple[int, FinishReason | None]:
        count = 0
        for length in lengths:
            run = truncate_emitted(tokens[count : count + length], count, end)
            count += run.kept
            if run.finish_reason is not None or count == len(tokens):
                return count, run.finish_reason
        raise AssertionError("runs are too short for the tokens")

    assert generate(run_lengths) == generate([1] * len(tokens))


def test_counts_of_one_pass() -> None:
    counts = AcceptanceCounts.of_pass(draft_count=4, accepted=2, kept=3)
    assert counts == AcceptanceCounts(
        passes=1, emitted=3, proposed=(1, 1, 1, 1), reached=(1, 1, 1, 0), accepted=(1, 1, 0, 0)
    )
    assert counts.accept_length == 3.0


def test_drafts_after_the_end_of_the_output_do_not_count() -> None:
    """Run [d1, d2, EOS, d4, d5, bonus]: three kept, three accepted."""
    counts = AcceptanceCounts.of_pass(draft_count=5, accepted=5, kept=3)
    assert counts == AcceptanceCounts(1, 3, proposed=(1, 1, 1), reached=(1, 1, 1), accepted=(1, 1, 1))


@pytest.mark.parametrize(("draft_count", "accepted", "kept"), [(2, 3, 1), (2, -1, 0), (2, 1, 3)])
def test_impossible_passes_are_refused(draft_count: int, accepted: int, kept: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        AcceptanceCounts.of_pass(draft_count, accepted, kept)


def test_no_pass_has_no_rates() -> None:
    empty = AcceptanceCounts()
    assert (empty.accept_length, empty.acceptance_rate) == (0.0, 0.0)
    assert empty.conditional_rates == empty.unconditional_rates == ()


def test_conditional_rates_stay_right_when_the_number_of_drafts_varies() -> None:
    """Three passes of one accepted draft must not lower the rate of second drafts that were never made."""
    counts = sum(
        [AcceptanceCounts.of_pass(1, 1, 2)] * 3
        + [AcceptanceCounts.of_pass(2, 2, 3), AcceptanceCounts.of_pass(2, 0, 1)],
        AcceptanceCounts(),
    )
    assert counts.unconditional_rates == (4 / 5, 1 / 2)
    assert counts.conditional_rates == (4 / 5, 1.0)


PASSES = st.integers(0, 5).flatmap(lambda drafts: st.tuples(st.just(drafts), st.integers(0, drafts)))


@given(st.lists(PASSES, min_size=1, max_size=20))
def test_identities_of_the_counts(passes: list[tuple[int, int]]) -> None:
    counts = sum(
        (AcceptanceCounts.of_pass(drafts, accepted, accepted + 1) for drafts, accepted in passes),
        AcceptanceCounts(),
    )
    assert counts.emitted == sum(counts.accepted) + counts.passes
    assert Fraction(counts.accept_length).limit_denominator(1000) == Fraction(counts.emitted, counts.passes)
    for position, reached in enumerate(counts.reached):
        assert counts.accepted[position] <= reached <= counts.proposed[position]
        judged = [accepted for drafts, accepted in passes if drafts > position and accepted >= position]
        assert reached == len(judged)
        assert counts.accepted[position] == sum(accepted > position for accepted in judged)
    assert counts.proposed == tuple(sorted(counts.proposed, reverse=True))
