"""Where reasoning begins and ends, in prompts and in outputs."""

from __future__ import annotations

import pytest

from draftproof.text.output_rules import Thinking
from draftproof.text.reasoning import ReasoningCounter, thinking_after
from tests.support.output_rules import END_THINK, OPEN, THINK, encode, tokenizer

CLOSED = Thinking(begins_open=False)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", Thinking(True, 5)),
        ("<|im_start|>assistant\n<think>", Thinking(True, 5)),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        ("What is <think>?<|im_end|>\n<|im_start|>assistant\n", Thinking(False, 5)),
        ("", Thinking(False, 5)),
    ],
)
def test_what_a_prompt_leaves_to_the_output(prompt: str, expected: Thinking | None) -> None:
    assert thinking_after(prompt, 5) == expected


def counts(thinking: Thinking | None, *runs: tuple[int, ...]) -> list[int]:
    counter = ReasoningCounter(tokenizer(), thinking)
    return [counter.push(run) for run in runs]


def test_tokens_between_the_markers_are_counted_in_any_run() -> None:
    a, b, c = encode("a b"), (END_THINK, *encode("c")), encode("d")
    assert counts(OPEN, a, b, c) == [len(a)] * 3
    assert counts(OPEN, (*a, *b, *c)) == [len(a)]
    assert counts(CLOSED, (THINK,), a, b) == [0, len(a), len(a)]
    assert counts(CLOSED, encode("\n"), (THINK, *a, *b)) == [0, len(a)]
    assert counts(CLOSED, a, (THINK, *a)) == [0, 0]
    assert counts(None, (THINK, *a, *b)) == [0]


def test_reasoning_that_never_ends_counts_whole() -> None:
    assert counts(OPEN, encode("a b c"), ()) == [len(encode("a b c"))] * 2


def test_an_end_in_other_tokens_ends_too() -> None:
    spelled = tuple(encode(character)[0] for character in "</think>")
    assert counts(OPEN, encode("a"), spelled, encode("b")) == [1, len(spelled), len(spelled)]


def test_only_the_first_reasoning_counts() -> None:
    assert counts(OPEN, (END_THINK, THINK, *encode("a"))) == [0]
