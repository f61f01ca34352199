"""Random expressions: the evaluator's value or exception is Python's."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.stacks.evaluation import Evaluator, Unknown
from draftproof.stacks.evaluation.unknowns import contains_unknown
from draftproof.stacks.source import SourceTree

ATOMS = st.sampled_from(
    ["0", "1", "-3", "2.5", "'a'", "'mtp.0'", "''", "None", "True", "[1, 2]", "{'a': 1}", "(1, 'a')"]
)
BINARY = st.sampled_from(
    ["+", "-", "*", "//", "%", "&", "|", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
)
UNARY = st.sampled_from(
    ["not {}", "-{}", "len({})", "str({})", "bool({})", "[{}]", "({},)", "{}[0]", "repr({})", "int({})"]
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger expressions of smaller ones."""
    return st.one_of(
        st.builds(lambda left, symbol, right: f"({left} {symbol} {right})", inner, BINARY, inner),
        st.builds(lambda form, part: f"({form.format(part)})", UNARY, inner),
        st.builds(lambda test, yes, no: f"({yes} if {test} else {no})", inner, inner, inner),
        st.builds(lambda part, index: f"({part}[{index}:])", inner, inner),
        st.builds(lambda part: f"(f'{{{part}!r}}')", st.sampled_from(["1", "None", "[2]"])),
        st.builds(lambda part: f"[v for v in {part}]", inner),
    )


EXPRESSIONS = st.recursive(ATOMS, combined, max_leaves=8)


def natively(text: str, **names: Any) -> tuple[str, str]:
    """What Python makes of an expression."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "value", repr(eval(text, dict(names)))
    except Exception as error:  # noqa: BLE001 - every exception is an answer here
        return type(error).__name__, str(error)


def outcomes_of(text: str, *arguments: Any) -> Any:
    """What the evaluator makes of it, as a function of x."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.py").write_text(f"def f(x=None):\n    return {text}\n")
        return Evaluator(SourceTree(Path(folder))).call("m.py", "f", *arguments)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_a_known_expression_has_pythons_value(text: str) -> None:
    (outcome,) = outcomes_of(text)
    assert outcome.not_understood is None
    if outcome.raised is not None:
        assert (outcome.raised.type_name, outcome.raised.message) == natively(text)
    else:
        assert ("value", repr(outcome.returned)) == natively(text)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, BINARY, st.sampled_from([0, 1, "a", None, [1, 2]]))
def test_a_known_answer_about_an_unknown_is_right_whatever_it_is(
    left: str, right: str, symbol: str, actual: object
) -> None:
    text = f"({left} {symbol} x) == ({right})"
    answers = [
        outcome.returned
        for outcome in outcomes_of(text, Unknown("x"))
        if outcome.has_returned and not contains_unknown(outcome.returned)
    ]
    kind, value = natively(text, x=actual)
    if answers and kind == "value":
        assert value in {repr(answer) for answer in answers}
