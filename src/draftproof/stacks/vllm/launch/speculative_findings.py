"""The keys of a speculative configuration, judged one by one by the fields of this version's class."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.vllm.launch.config_fields import ConfigField
from draftproof.stacks.vllm.launch.options import SpeculativeKeys
from draftproof.stacks.vllm.launch.speculative_request import SpeculativeRequest

_OTHER_STACKS_METHODS = ("nextn", "eagle", "eagle3")
_ENGINE_SETS = (
    "target_model_config",
    "target_parallel_config",
    "draft_model_config",
    "draft_parallel_config",
)


def key_findings(request: SpeculativeRequest, keys: SpeculativeKeys) -> Iterator[LaunchFinding]:
    """What is to say about each key: whether it exists, and whether its value is taken."""
    for key, value in request.values.items():
        field = keys.get(key)
        if field is None or key in _ENGINE_SETS:
            yield _unknown(key, keys)
        elif key == "method":
            yield _method(value, keys, field)
        else:
            yield _value(key, value, field)


def _unknown(key: str, keys: SpeculativeKeys) -> LaunchFinding:
    names = [field.name for field in keys.fields if field.name not in _ENGINE_SETS]
    near = get_close_matches(key, names, n=2, cutoff=0.6)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"leave {key} out"
    if key in ("num_draft_tokens", "speculative_num_draft_tokens", "num_steps", "k"):
        remedy = 'K drafts a pass are "num_speculative_tokens": K (SGLang\'s draft tokens minus 1)'
    return LaunchFinding(
        "speculative-key",
        f'"{key}"',
        Ruling.BREAKS,
        "Every key of the speculative configuration is one of its fields.",
        f"one of {', '.join(names)}",
        "it is no field of the class, which refuses further fields",
        remedy,
        (keys.place,),
    )


def _method(value: Any, keys: SpeculativeKeys, field: ConfigField) -> LaunchFinding:
    subject = f'"method": "{value}"'
    claim = "This version knows the method that is asked for."
    expected = f"one of {', '.join(keys.methods)}"
    places = (field.place,)
    if value is None or value in keys.methods:
        is_old = value in keys.head_names and value != "mtp"
        observed = "it is an older name of mtp, rewritten with a warning" if is_old else "it is one of them"
        ruling = Ruling.WARNS if is_old else Ruling.HOLDS
        remedy = 'write "method": "mtp"' if is_old else ""
        return LaunchFinding("algorithm-accepted", subject, ruling, claim, expected, observed, remedy, places)
    folded = str(value).lower()
    remedy = f"use one of {', '.join(get_close_matches(folded, keys.methods, n=3, cutoff=0.4)) or 'them'}"
    if folded in _OTHER_STACKS_METHODS or "mtp" in folded:
        remedy = 'write "method": "mtp" for the head that the checkpoint carries'
    observed = "it is none of them; names are compared as they are, capitals included"
    return LaunchFinding(
        "algorithm-accepted", subject, Ruling.BREAKS, claim, expected, observed, remedy, places
    )


def _value(key: str, value: Any, field: ConfigField) -> LaunchFinding:
    problem = value_problem(value, field)
    choices = ", ".join(str(choice) for choice in field.type.choices)
    strict = field.type.has("Literal") and not field.type.has("str")
    parts = sorted(field.type.parts - {"None", "Literal"})
    expected = f"one of {choices}" if strict else " or ".join(parts) or "a value"
    expected += "".join(f", {bound}" for bound in field.bounds)
    return LaunchFinding(
        "speculative-value",
        f'"{key}": {value!r}',
        Ruling.BREAKS if problem else Ruling.HOLDS,
        "Every value of the speculative configuration is one that its field takes.",
        expected,
        problem or "it does",
        f"give {key} {expected}" if problem else "",
        (field.place,),
    )


def value_problem(value: Any, field: ConfigField) -> str:
    """Why a field refuses a value of JSON; empty when it takes it."""
    kind = field.type
    if value is None:
        return "" if kind.has("None") or field.default == "" else f"null is no {_words(field)}"
    if kind.has("Literal") and not kind.has("str"):
        return "" if value in kind.choices else f"{value!r} is none of them"
    if kind.has("enum"):
        known = {str(choice).lower() for choice in kind.choices} | {"auto"}
        return (
            "" if str(value).lower() in known else f"{value!r} is none of {', '.join(map(str, kind.choices))}"
        )
    if not any(_fits(value, part) for part in kind.parts):
        return f"{value!r} is no {_words(field)}"
    if field.bounds and isinstance(value, int | float | str):
        number = float(value)
        broken = [str(bound) for bound in field.bounds if not bound.holds(number)]
        return f"{number:g} must be {' and '.join(broken)}" if broken else ""
    return ""


def _words(field: ConfigField) -> str:
    return " or ".join(sorted(field.type.parts - {"None"}))


def _fits(value: Any, part: str) -> bool:
    """Whether the configuration's lenient reading of JSON takes a value for a type."""
    if part == "bool":
        return isinstance(value, bool) or value in (0, 1) or str(value).lower() in ("true", "false")
    if part == "int":
        return _is_number(value) and float(value).is_integer()
    if part == "float":
        return _is_number(value)
    if part == "str":
        return isinstance(value, str)
    if part in ("list", "tuple", "set"):
        return isinstance(value, list)
    if part in ("dict", "config"):
        return isinstance(value, dict)
    return part == "other"


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
