"""Scripted drafters propose exactly what their script says."""

from __future__ import annotations

import pytest
import torch

from draftproof.runtime.sampler import SequenceContext
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.sequence import Sequence
from draftproof.speculation.drafter import CommittedRows, NoDrafter
from draftproof.speculation.scripted import Script, ScriptedDrafter, anti, empty, oracle, pattern

VOCABULARY = 100
REFERENCES = {"a": (10, 11, 12, 13, 14, 99), "b": (20, 21, 22)}


def sequence_of(name: str, produced: int) -> Sequence:
    return Sequence(name, (1, 2, 3), 6, output=list(REFERENCES[name][:produced]))


def propose(script: Script, sequences: list[Sequence], wanted: list[int]) -> tuple[tuple[int, ...], ...]:
    contexts = [
        SequenceContext(SamplingParameters(), sequence.prompt, (), VOCABULARY) for sequence in sequences
    ]
    rows = CommittedRows(
        tuple(sequences),
        tuple(contexts),
        (0,) * len(sequences),
        (1,) * len(sequences),
        torch.zeros(len(sequences), 1, 4),
        torch.zeros(len(sequences), 1, dtype=torch.long),
        tuple(wanted),
    )
    return ScriptedDrafter(script).propose(rows)


def test_the_oracle_is_right_from_where_each_sequence_is() -> None:
    drafts = propose(oracle(REFERENCES), [sequence_of("a", 1), sequence_of("b", 2)], [3, 3])
    assert drafts == ((11, 12, 13), (22,))


def test_the_anti_drafter_is_wrong_everywhere_and_stays_in_the_vocabulary() -> None:
    assert propose(anti(REFERENCES, VOCABULARY), [sequence_of("a", 3)], [3]) == ((14, 15, 0),)


def test_the_empty_drafter_and_no_drafter_propose_nothing() -> None:
    assert propose(empty, [sequence_of("a", 1), sequence_of("b", 1)], [3, 2]) == ((), ())
    assert NoDrafter.name == "none"


@pytest.mark.parametrize("script", [oracle(REFERENCES), anti(REFERENCES, VOCABULARY)])
@pytest.mark.parametrize("wanted", [0, 1, 2, 5])
def test_never_more_than_wanted(script: Script, wanted: int) -> None:
    assert len(propose(script, [sequence_of("a", 1)], [wanted])[0]) == wanted


def test_a_pattern_takes_turns_per_request() -> None:
    script = pattern(REFERENCES, VOCABULARY, [2, None, 0, 1])
    seen = [propose(script, [sequence_of("a", 1), sequence_of("b", 0)], [3, 2]) for _ in range(5)]
    assert [one[0] for one in seen] == [(11, 12, 14), (), (12, 13, 14), (11, 13, 14), (11, 12, 14)]
    assert [one[1] for one in seen] == [(20, 21), (), (21, 22), (20, 22), (20, 21)]


def test_a_turn_is_not_used_up_where_nothing_is_wanted() -> None:
    script = pattern(REFERENCES, VOCABULARY, [1, 0])
    assert propose(script, [sequence_of("a", 1)], [0]) == ((),)
    assert propose(script, [sequence_of("a", 1)], [2]) == ((11, 13),)
