"""Whether the words after an option are a value that vLLM's parser takes."""

from __future__ import annotations

import json
import re

from draftproof.stacks.command.command import GivenFlag
from draftproof.stacks.launch_facts import ValueKind
from draftproof.stacks.vllm.launch.declared_options import DeclaredOption

_HUMAN = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")


def problem_with(flag: GivenFlag, declared: DeclaredOption) -> str:
    """What is wrong with an option's value, in words; empty when nothing is."""
    option = declared.option
    if option.kind is ValueKind.FLAG:
        return f"takes no value, and got {flag.value!r}" if flag.attached else ""
    if flag.path:
        return "" if flag.values else "has no value"
    if not flag.values:
        return "" if _may_stand_alone(declared) else "has no value"
    if option.kind is ValueKind.LIST:
        return next((text for word in flag.values if (text := _choice_problem(word, declared))), "")
    return _single_problem(flag.values[0], declared)


def _may_stand_alone(declared: DeclaredOption) -> bool:
    field = declared.field
    return field is not None and field.type.parts == {"bool", "str", "None"}


def _single_problem(word: str, declared: DeclaredOption) -> str:
    if word in ("", "None") and (declared.field is None or declared.field.type.has("None")):
        return ""
    kind = declared.option.kind
    if kind is ValueKind.INTEGER:
        return _number_problem(word, declared)
    if kind is ValueKind.NUMBER:
        return _float_problem(word, declared)
    if kind is ValueKind.JSON:
        return json_problem(word)
    return _choice_problem(word, declared)


def _number_problem(word: str, declared: DeclaredOption) -> str:
    if declared.human and (_HUMAN.fullmatch(word) or word.lower() == "auto"):
        return ""
    try:
        number = int(word)
    except ValueError:
        return f"is no integer: {word!r}"
    return _bound_problem(number, declared)


def _float_problem(word: str, declared: DeclaredOption) -> str:
    try:
        number = float(word)
    except ValueError:
        return f"is no number: {word!r}"
    return _bound_problem(number, declared)


def _bound_problem(number: float, declared: DeclaredOption) -> str:
    broken = [str(bound) for bound in declared.bounds if not bound.holds(number)]
    return f"is {number:g}, and must be {' and '.join(broken)}" if broken else ""


def _choice_problem(word: str, declared: DeclaredOption) -> str:
    choices = declared.option.choices
    if not choices:
        return ""
    known = {_folded(choice) for choice in choices} if declared.folds else set(choices)
    wanted = _folded(word) if declared.folds else word
    if wanted in known or (declared.folds and wanted == "auto"):
        return ""
    return f"is {word!r}, and only {', '.join(choices)} are known"


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


def json_problem(word: str) -> str:
    """What keeps a word from being a JSON object; empty when it is one."""
    try:
        value = json.loads(word)
    except (ValueError, RecursionError) as error:
        lost = " (the shell took its quotes away; put it in single quotes)" if '"' not in word else ""
        return f"is no JSON{lost}: {error}"
    return "" if isinstance(value, dict) else f"is JSON, and no object: {word}"
