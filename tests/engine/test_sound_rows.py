"""Rows of a step are sampled for all sequences whose logits are sound."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.sound_rows import sample_sound_rows
from draftproof.runtime.sampler import SequenceContext, SequenceRows
from draftproof.runtime.sampling import SamplingParameters

VOCABULARY = 6


def window(*drafts: int, **parameters: object) -> SequenceRows:
    chosen = SamplingParameters(**{"temperature": 0.0, **parameters})  # type: ignore[arg-type]
    return SequenceRows(SequenceContext(chosen, (1, 2), (), VOCABULARY), drafts)


def logits_of(*largest: int) -> torch.Tensor:
    """Rows whose largest logit is of these tokens."""
    rows = torch.zeros(len(largest), VOCABULARY)
    rows[torch.arange(len(largest)), torch.tensor(largest)] = 1.0
    return rows


def test_tokens_by_sequence() -> None:
    sampled = sample_sound_rows(logits_of(1, 2, 3, 4, 5, 0), [window(9, 9), window(), window(9)])
    assert sampled.tokens == ((1, 2, 3), (4,), (5, 0))
    assert sampled.first_rows == (0, 3, 4)
    assert not sampled.lost


@pytest.mark.parametrize(("row", "lost"), [(0, 0), (2, 0), (3, 1), (4, 2), (5, 2)])
def test_a_row_without_a_choice_costs_its_sequence(row: int, lost: int) -> None:
    logits = logits_of(1, 2, 3, 4, 5, 0)
    logits[row, 3] = torch.nan
    sampled = sample_sound_rows(logits, [window(9, 9), window(), window(9)])
    assert sampled.lost == {lost}
    expected = [(1, 2, 3), (4,), (5, 0)]
    expected[lost] = (0,) * len(expected[lost])
    assert list(sampled.tokens) == expected


def test_a_fault_that_shows_only_after_the_bias() -> None:
    """The raw logits are sound, but the bias leaves nothing to choose."""
    nothing = tuple((token, -torch.inf) for token in range(VOCABULARY))
    biased = window()
    object.__setattr__(biased.context.parameters, "logit_bias", nothing)
    biased.context._changes_logits = True
    sampled = sample_sound_rows(logits_of(1, 2, 3), [window(), biased, window()])
    assert (sampled.lost, sampled.tokens) == ({1}, ((1,), (0,), (3,)))


def test_nobody_is_left() -> None:
    sampled = sample_sound_rows(torch.full((2, VOCABULARY), torch.nan), [window(), window()])
    assert sampled.lost == {0, 1}
