"""The evaluator's definition is Python: the same function gives the same value or exception."""

from __future__ import annotations

import enum
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from draftproof.stacks.evaluation import ClassValue, Evaluator, Instance, Settings
from draftproof.stacks.source import SourceTree

PROGRAMS = {
    name: text
    for name, _, text in (
        part.partition("\n")
        for part in Path(__file__).with_name("programs.txt").read_text().split("### ")[1:]
    )
}


def natively(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    """What Python itself makes of `f()`."""
    module = types.ModuleType("prog")
    monkeypatch.setitem(sys.modules, "prog", module)
    exec(compile(text, "prog.py", "exec"), vars(module))
    try:
        return "returned", plain(module.f())
    except Exception as error:  # noqa: BLE001 - every exception is an answer here
        return type(error).__name__, str(error)


def evaluated(text: str, folder: Path) -> tuple[str, Any]:
    """What the evaluator makes of `f()`."""
    (folder / "prog.py").write_text(text)
    outcomes = Evaluator(SourceTree(folder), settings=Settings(environment={"NAME_X": "7"})).call(
        "prog.py", "f"
    )
    assert len(outcomes) == 1, outcomes
    (outcome,) = outcomes
    assert outcome.not_understood is None, str(outcome.not_understood)
    assert outcome.conditions == ()
    if outcome.raised is not None:
        return outcome.raised.type_name, outcome.raised.message
    return "returned", plain(outcome.returned)


def plain(value: Any) -> Any:
    """A value of either side in a form that can be compared."""
    if isinstance(value, Instance):
        if "_value_" in value.attributes:
            return ("member", value.attributes["_name_"])
        if isinstance(value.payload, (dict, list, tuple, set, str, int, float)):
            return plain(value.payload)
        return ("object", value.cls.name, plain(value.attributes))
    if isinstance(value, enum.Enum):
        return ("member", value.name)
    if isinstance(value, ClassValue):
        return ("class", value.name)
    if isinstance(value, (list, tuple)):
        return [type(value).__name__ if type(value) in (list, tuple) else "tuple", *map(plain, value)]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (str, int, float, bytes, type(None), set, frozenset)):
        return value
    if isinstance(value, type):
        return ("class", value.__name__)
    return ("object", type(value).__name__, plain(getattr(value, "__dict__", str(value))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_python_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "NAME_X", "7")
    assert evaluated(PROGRAMS[name], tmp_path) == natively(PROGRAMS[name], monkeypatch)
