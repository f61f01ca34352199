"""Grammars of every kind: what they admit, and faults that are named before an answer begins."""

from __future__ import annotations

import json
import threading

import pytest

from draftproof.errors import UsageError
from draftproof.text.grammar import MOST_KEPT_GRAMMARS, GrammarCompiler
from draftproof.text.output_constraint import OutputConstraint
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules
from tests.support.output_rules import ENDS, VOCABULARY, compiler, encode, fresh, tokenizer


def admits(grammar: Grammar, text: str) -> bool:
    """Whether a text is a whole answer."""
    return fresh(grammar).allowed((*encode(text), ENDS[0]), len(encode(text)) + 1)[0] is not None


def schema(**fields: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(fields))


@pytest.mark.parametrize(
    ("grammar", "answers", "others"),
    [
        (
            Grammar(GrammarKind.JSON_OBJECT),
            ["{}", '{"a": [1, {"b": null}], "c": "é\\n"}', '{\n  "a": 1,\n  "b": 2\n}'],
            ["[]", "1", "", '{"a": 1', "{} ", '{"a":         1}'],
        ),
        (
            schema(type="object", properties={"n": {"type": "integer"}}, required=["n"]),
            ['{"n": 1}', '{"n": -3, "m": true}'],
            ["{}", '{"n": 1.5}', '{"n": "1"}'],
        ),
        (
            schema(
                **{
                    "$ref": "#/$defs/Tree",
                    "$defs": {"Tree": {"items": {"$ref": "#/$defs/Tree"}, "type": "array"}},
                }
            ),
            ["[]", "[[], [[]]]"],
            ["[1]", "{}"],
        ),
        (Grammar(GrammarKind.REGEX, "[ab]{2}|é"), ["ab", "é"], ["a", "abc", ""]),
        (Grammar(GrammarKind.LARK, 'start: "x" start? "y"'), ["xy", "xxyy"], ["xyy", "x"]),
        (
            Grammar(GrammarKind.CHOICE, json.dumps(["yes", 'n"o\\\n', "é😀\x00", "</think>"])),
            ["yes", 'n"o\\\n', "é😀\x00", "</think>"],
            ["ye", "no", ""],
        ),
    ],
    ids=["object", "schema", "recursive", "regex", "lark", "choice"],
)
def test_every_kind(grammar: Grammar, answers: list[str], others: list[str]) -> None:
    assert [text for text in answers if not admits(grammar, text)] == []
    assert [text for text in others if admits(grammar, text)] == []


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", "{", "the json_schema cannot be used: EOF while parsing"),
        ("json_schema", '{"type": "strin"}', "the json_schema cannot be used: Invalid type: strin"),
        ("json_schema", '{"not": {}}', r'the json_schema cannot be used: Unimplemented keys: \["not"\]'),
        ("json_schema", '{"enum": []}', "the json_schema cannot be used: Unsatisfiable schema"),
        ("json_schema", '{"a":' * 3000, "the json_schema cannot be used: recursion limit exceeded"),
        ("regex", "a(", "the regex cannot be used: .*error: unclosed group"),
        ("lark", 'start: "a" (', r"the lark cannot be used: 1\(13\): Expected token"),
        ("lark", "", "the lark cannot be used: Empty grammar"),
        ("lark", "a" * (1 << 20) + "b", "the lark has 1048577 characters; allowed: 1048576"),
        ("choice", "[]", "choice must be a JSON list of at least one text"),
        ("choice", '["a", 1]', "choice must be a JSON list of at least one text"),
        ("choice", "yes", "choice must be a JSON list of at least one text"),
        ("choice", "[" * 100_000, "choice must be a JSON list of at least one text"),
    ],
)
def test_the_fault_of_a_grammar_is_named_in_one_line(kind: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        compiler().check(OutputRules(Grammar(GrammarKind(kind), text)))
    assert "\n" not in str(caught.value)


def test_a_grammar_that_a_tokenizer_cannot_write_is_refused() -> None:
    """The padding of the vocabulary has no text, so nothing spells this byte."""
    narrow = GrammarCompiler(tokenizer(), (3,), 40)
    narrow.check(OutputRules(Grammar(GrammarKind.CHOICE, '["!"]')))
    with pytest.raises(UsageError, match=r"the choice (allows no answer|cannot be used)"):
        narrow.check(OutputRules(Grammar(GrammarKind.CHOICE, '["é"]')))


def test_a_grammar_needs_a_token_that_ends_the_answer() -> None:
    for ends in ((), (VOCABULARY,)):
        with pytest.raises(UsageError, match="names no token that ends an output"):
            GrammarCompiler(tokenizer(), ends, VOCABULARY).check(
                OutputRules(Grammar(GrammarKind.JSON_OBJECT))
            )


def test_special_tokens_are_no_text_but_markers_are() -> None:
    anything = fresh(Grammar(GrammarKind.REGEX, "(?s:.*)"))
    (mask,) = anything.allowed((), 0)
    assert mask is not None
    names = ("<|im_start|>", "<|image_pad|>", "<tool_call>", "</think>")
    allowed = [bool(mask[tokenizer().token_id(name) or 0]) for name in names]
    assert allowed == [False, False, True, True]


def test_outputs_of_one_grammar_do_not_move_each_other() -> None:
    grammar = Grammar(GrammarKind.CHOICE, '["ab", "cd"]')
    first, second = fresh(grammar), fresh(grammar)
    first.commit(encode("a"))
    second.commit(encode("c"))
    for constraint, text in ((first, "b"), (second, "d")):
        (mask,) = constraint.allowed((), 0)
        assert mask is not None
        assert mask.nonzero()[0].tolist() == list(encode(text))


def test_threads_may_share_a_compiler_and_old_grammars_are_forgotten() -> None:
    shared = GrammarCompiler(tokenizer(), ENDS, VOCABULARY)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + MOST_KEPT_GRAMMARS):
                shared.check(OutputRules(Grammar(GrammarKind.REGEX, f"a{{{number % 70}}}")))
        except BaseException as error:  # noqa: BLE001 handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(shared._kept) == MOST_KEPT_GRAMMARS


# A parser that gives up: an answer that is cut in two must not look whole, the engine must not notice, and no
# other request may be touched.

AMBIGUOUS = Grammar(GrammarKind.LARK, 'start: e\ne: e e | e e e | "a" | e "+" e | "(" e ")"')
LETTER = encode("a")[0]


def only_ends(constraint: OutputConstraint) -> bool:
    (mask,) = constraint.allowed((), 0)
    assert mask is not None
    return mask.nonzero()[0].tolist() == sorted(ENDS)


def length_until_it_can_only_end(constraint: OutputConstraint) -> int:
    """With a failure after that end."""
    for length in range(1000):
        if only_ends(constraint):
            constraint.commit(ENDS[:1])
            assert "its parser hit a limit" in (constraint.failure or "")
            return length
        assert constraint.failure is None
        constraint.commit((LETTER,))
    raise AssertionError("the parser never gives up")


@pytest.fixture
def few_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up early; what was compiled before is forgotten."""
    monkeypatch.setattr("draftproof.text.grammar.MOST_LARK_ITEMS", 100)
    compiler()._kept.clear()


@pytest.mark.usefixtures("few_items")
def test_a_parser_that_gives_up_ends_the_answer_as_a_failure() -> None:
    length = length_until_it_can_only_end(fresh(AMBIGUOUS))
    assert length > 5
    masks = fresh(AMBIGUOUS).allowed((LETTER,) * (length + 1), 0)
    assert [mask is None or mask.nonzero()[0].tolist() == sorted(ENDS) for mask in masks] == [
        *(False,) * length,
        True,
        True,
    ]
    committed = fresh(AMBIGUOUS)
    committed.commit((LETTER,) * length)
    assert only_ends(committed)


def test_a_parser_that_gave_up_does_not_spoil_later_requests_of_its_grammar() -> None:
    """Copies of a matcher share what they learned, and here that is what hits a limit."""
    grammar = Grammar(GrammarKind.REGEX, "((a{1,1000}){1,1000}){1,1000}b")
    lengths = [length_until_it_can_only_end(fresh(grammar)) for _ in range(2)]
    assert min(lengths) > 5


@pytest.mark.usefixtures("few_items")
def test_drafts_at_which_a_parser_gives_up_leave_no_trace() -> None:
    length = length_until_it_can_only_end(fresh(AMBIGUOUS))
    constraint = fresh(AMBIGUOUS)
    constraint.allowed((LETTER,) * (length + 3), 0)
    (mask,) = constraint.allowed((), 0)
    constraint.commit((LETTER, LETTER))
    (expected,) = fresh(AMBIGUOUS).allowed((), 0)
    assert mask is not None
    assert expected is not None
    assert mask.tolist() == expected.tolist()
    assert length_until_it_can_only_end(constraint) == length - 2


def test_where_no_token_goes_on_the_answer_ends_as_a_failure() -> None:
    narrow = GrammarCompiler(tokenizer(), (3,), 40)
    constraint = narrow.constraint(OutputRules(Grammar(GrammarKind.CHOICE, '["!é"]')))
    assert constraint is not None
    constraint.commit(encode("!"))
    (mask,) = constraint.allowed((), 0)
    assert mask is not None
    assert mask.nonzero()[0].tolist() == [3]
    constraint.commit((3,))
    assert constraint.failure is not None
