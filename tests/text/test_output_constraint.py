"""Rules of an output, row by row: what may follow each draft, and that drafts move nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from draftproof.errors import UsageError
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.output_constraint import OutputConstraint
from draftproof.text.output_rules import WATCHED_TOKENS, Grammar, GrammarKind, OutputRules, Thinking
from tests.support.output_rules import (
    END_THINK,
    ENDS,
    OPEN,
    THINK,
    VOCABULARY,
    WHOLE_NUMBER,
    compiler,
    encode,
    fresh,
    tokenizer,
)

Mask = NDArray[np.bool_]
EOS = ENDS[1]
NEWLINES = (*encode("\n"), *encode("\n"))
BRACE, TICK, DOT = encode("{")[0], encode("`")[0], encode(".")[0]


def ids(mask: Mask | None) -> set[int]:
    assert mask is not None
    return set(np.flatnonzero(mask).tolist())


def after(constraint: OutputConstraint, *drafts: int) -> Mask | None:
    """What may follow some drafts."""
    return constraint.allowed(drafts, len(drafts))[0]


# The grammar


def test_every_row_sees_the_drafts_before_it() -> None:
    constraint = fresh(WHOLE_NUMBER)
    drafts = encode('{"a":7}')
    masks = constraint.allowed(drafts, 0)
    assert len(masks) == len(drafts) + 1
    for mask, token in zip(masks, drafts, strict=False):
        assert token in ids(mask)
    assert ids(masks[0]) == {BRACE}
    assert ids(masks[-1]) == set(ENDS)
    assert constraint.allowed(drafts, 3)[0] is masks[3]


def test_rows_after_a_draft_that_is_not_allowed_are_dead() -> None:
    constraint = fresh(WHOLE_NUMBER)
    masks = constraint.allowed((BRACE, TICK, TICK), 0)
    assert masks[2:] == [None, None]
    assert TICK not in ids(masks[1])
    assert ids(after(constraint)) == {BRACE}


def test_only_ends_follow_a_whole_answer_and_each_other() -> None:
    constraint = fresh(WHOLE_NUMBER)
    drafts = (*encode('{"a":7}'), EOS, ENDS[0], BRACE)
    masks = constraint.allowed(drafts, len(drafts) - 3)
    assert [ids(mask) for mask in masks[:3]] == [set(ENDS)] * 3
    assert masks[3] is None
    constraint.commit(drafts[:-1])
    assert ids(after(constraint)) == set(ENDS)
    constraint.commit((EOS,))
    assert ids(after(constraint)) == set(ENDS)


def test_an_end_before_the_answer_is_whole_is_not_allowed() -> None:
    constraint = fresh(WHOLE_NUMBER)
    assert after(constraint, *encode('{"a":7'), EOS) is None
    assert constraint.is_active


def test_an_answer_may_end_where_it_may_also_go_on() -> None:
    constraint = fresh(Grammar(GrammarKind.REGEX, "a+"))
    assert ids(after(constraint, *encode("a"))) > set(ENDS)
    assert ids(after(constraint, *encode("a"), EOS)) == set(ENDS)


def test_after_a_token_that_was_not_allowed_the_output_can_only_end_and_has_failed() -> None:
    constraint = fresh(WHOLE_NUMBER)
    constraint.commit((BRACE,))
    assert constraint.failure is None
    constraint.commit((TICK, BRACE))
    for _ in range(2):
        assert ids(after(constraint)) == set(ENDS)
        assert constraint.failure is not None
        constraint.commit((EOS,))


def test_a_whole_answer_has_not_failed() -> None:
    constraint = fresh(WHOLE_NUMBER, Thinking(begins_open=True, budget=1))
    constraint.commit((DOT, END_THINK, *encode('{"a":7}'), EOS, EOS))
    assert constraint.failure is None


# Reasoning


def test_rows_after_the_end_of_reasoning_obey_the_grammar_in_the_same_window() -> None:
    """['.', '</think>', '```', 'json'] in one window: the third row is the grammar's."""
    constraint = fresh(WHOLE_NUMBER, OPEN)
    masks = constraint.allowed((DOT, END_THINK, TICK, TICK), 0)
    assert ids(masks[0]) == ids(masks[1]) == set(range(VOCABULARY)) - set(ENDS)
    assert ids(masks[2]) == {BRACE, NEWLINES[0]}
    assert masks[3:] == [None, None]


def test_the_newlines_of_chat_templates_may_stand_before_the_answer() -> None:
    constraint = fresh(WHOLE_NUMBER, OPEN)
    assert ids(after(constraint, END_THINK, NEWLINES[0])) == {BRACE, NEWLINES[0]}
    assert ids(after(constraint, END_THINK, *NEWLINES)) == {BRACE}
    constraint.commit((DOT, END_THINK, *NEWLINES))
    assert ids(after(constraint)) == {BRACE}
    assert ids(after(constraint, *encode('{"a":7}'))) == set(ENDS)


def test_newlines_that_the_grammar_wants_are_the_grammars() -> None:
    constraint = fresh(Grammar(GrammarKind.REGEX, "\n\n\na"), OPEN)
    assert ids(after(constraint, END_THINK, *NEWLINES, NEWLINES[0])) == set(encode("a"))


def test_an_answer_with_a_grammar_cannot_end_in_the_reasoning() -> None:
    constraint = fresh(WHOLE_NUMBER, OPEN)
    assert after(constraint, DOT, EOS) is None


def test_the_end_of_reasoning_cannot_be_spelled_past_the_grammar() -> None:
    """Text parsers would see the end; the grammar must see it too, and it cannot begin inside a token."""
    constraint = fresh(WHOLE_NUMBER, OPEN)
    spelled = tuple(encode(character)[0] for character in "</think>")
    for length in range(len(spelled)):
        mask = ids(after(constraint, DOT, *spelled[:length]))
        assert END_THINK in mask
        assert (spelled[length] in mask) == (length < len(spelled) - 1)
    assert after(constraint, *spelled) is None


def test_output_may_begin_with_reasoning() -> None:
    constraint = fresh(WHOLE_NUMBER, Thinking(begins_open=False))
    assert ids(after(constraint)) == {BRACE, THINK}
    assert ids(after(constraint, THINK)) == set(range(VOCABULARY)) - set(ENDS)
    assert ids(after(constraint, THINK, END_THINK)) == {BRACE, NEWLINES[0]}
    assert THINK not in ids(after(constraint, BRACE))


# The budget


@pytest.mark.parametrize("grammar", [None, WHOLE_NUMBER])
def test_a_budget_forces_the_end_at_exactly_its_token(grammar: Grammar | None) -> None:
    constraint = fresh(grammar, Thinking(begins_open=True, budget=10))
    masks = constraint.allowed((DOT,) * 12, 0)
    assert all(mask is None or len(ids(mask)) > 300 for mask in masks[:10])
    assert ids(masks[10]) == {END_THINK}
    assert masks[11:] == [None, None]
    constraint.commit((DOT,) * 7)
    assert [mask is not None and ids(mask) == {END_THINK} for mask in constraint.allowed((DOT,) * 3, 0)] == [
        *(False, False, False, True)
    ]


def test_a_budget_of_nothing_forces_the_end_at_once() -> None:
    assert ids(after(fresh(None, Thinking(begins_open=True, budget=0)))) == {END_THINK}
    begun = fresh(None, Thinking(begins_open=False, budget=0))
    assert after(begun) is None
    assert ids(after(begun, THINK)) == {END_THINK}


def test_a_budget_alone_is_announced_before_it_matters_and_then_forgotten() -> None:
    constraint = fresh(None, Thinking(begins_open=True, budget=WATCHED_TOKENS + 5))
    assert not constraint.is_active
    constraint.commit((DOT,) * 5)
    assert constraint.is_active
    constraint.commit((END_THINK,))
    assert not constraint.is_active
    assert after(constraint, EOS) is None
    constraint.commit((EOS, DOT, DOT))


def test_a_budget_counts_only_reasoning() -> None:
    constraint = fresh(None, Thinking(begins_open=False, budget=2))
    assert constraint.is_active
    constraint.commit((NEWLINES[0], THINK, DOT))
    assert ids(after(constraint, DOT)) == {END_THINK}
    answered = fresh(None, Thinking(begins_open=False, budget=2))
    answered.commit((DOT,))
    assert not answered.is_active


def test_reasoning_that_is_ended_in_other_tokens_has_ended_for_the_budget() -> None:
    constraint = fresh(None, Thinking(begins_open=True, budget=9))
    constraint.commit(tuple(encode(character)[0] for character in "</think>"))
    assert not constraint.is_active


def test_reasoning_needs_a_token_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tokenizer()), "token_id", lambda self, text: None)
    without = GrammarCompiler(tokenizer(), ENDS, VOCABULARY)
    with pytest.raises(UsageError, match="the tokenizer has no token </think>"):
        without.check(OutputRules(WHOLE_NUMBER, OPEN))
    # An output that only might begin with reasoning has none then.
    constraint = without.constraint(OutputRules(WHOLE_NUMBER, Thinking(begins_open=False, budget=0)))
    assert constraint is not None
    assert ids(after(constraint)) == {BRACE}


def test_rules_that_leave_everything_free_are_no_constraint() -> None:
    assert compiler().constraint(OutputRules()) is None
    assert compiler().constraint(OutputRules(thinking=OPEN)) is None


# Drafts move nothing


RULES = [
    OutputRules(WHOLE_NUMBER),
    OutputRules(Grammar(GrammarKind.JSON_OBJECT)),
    OutputRules(Grammar(GrammarKind.REGEX, "(ab?)*c"), Thinking(begins_open=False, budget=4)),
    OutputRules(WHOLE_NUMBER, Thinking(begins_open=True, budget=5)),
    OutputRules(None, Thinking(begins_open=True, budget=6)),
]


def pick(mask: Mask | None, generator: random.Random, wrong: float) -> int:
    """A token that is allowed, or, at times, any."""
    if mask is None or generator.random() < wrong:
        return generator.randrange(VOCABULARY)
    return generator.choice(sorted(ids(mask)))


def replayed(rules: OutputRules, tokens: Sequence[int]) -> Mask | None:
    constraint = compiler().constraint(rules)
    assert constraint is not None
    constraint.commit(tokens)
    return after(constraint)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_any_windows_and_commits_equal_a_replay_of_the_committed_tokens(
    rules: OutputRules, seed: int
) -> None:
    """Drafters ask row by row, the target asks for whole windows, some drafts are wrong, commits are of any
    length: every mask is the one of a fresh constraint that was given the same tokens."""
    generator = random.Random(seed)
    constraint = compiler().constraint(rules)
    assert constraint is not None
    committed: list[int] = []
    for _ in range(12):
        drafts: list[int] = []
        for row in range(generator.randrange(5)):
            mask = constraint.allowed(drafts, row)[0]
            drafts.append(pick(mask, generator, wrong=0.15))
        masks = constraint.allowed(drafts, 0)
        run: list[int] = []
        for row, mask in enumerate(masks):
            expected = replayed(rules, [*committed, *run])
            assert (mask is None) == (expected is None)
            assert mask is None or np.array_equal(mask, expected)
            run.append(pick(mask, generator, wrong=0.0))
            if row < len(drafts) and generator.random() < 0.7 and (mask is None or mask[drafts[row]]):
                run[-1] = drafts[row]
            else:
                break
        constraint.commit(run)
        committed.extend(run)
