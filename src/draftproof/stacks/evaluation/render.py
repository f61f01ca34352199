"""Values as text: `str`, `repr` and `format` of evaluated code, and short texts for conditions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import LOST, Unknown, Value, has_lost_contents, unknown_text
from draftproof.stacks.evaluation.values import (
    ABSENT,
    BoundMethod,
    ClassKind,
    ClassValue,
    FunctionValue,
    Instance,
    NativeFunction,
    Symbol,
    unwrapped,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_PLAIN = (str, int, float, bool, bytes, complex, type(None), range, slice)
_LONGEST_SHOWN = 60
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    set: ("{", "}"),
    tuple: ("(", ")"),
    frozenset: ("frozenset({", "})"),
}


def shown(value: Value) -> str:
    """A value in a few words, for the name of a condition."""
    if isinstance(value, Unknown):
        if value.is_text:
            return repr(value.name)
        text = f"not ({value.name})" if value.negated else value.name
        return f"({text})" if " " in text and not text.endswith(")") else text
    if isinstance(value, Instance):
        if value.cls.kind in (ClassKind.ENUM, ClassKind.FLAG):
            return value.label
        return value.label if value.payload is ABSENT else shown(value.payload)
    if isinstance(value, ClassValue):
        return value.name
    if isinstance(value, (FunctionValue, NativeFunction)):
        return value.name
    if isinstance(value, BoundMethod):
        return f"{shown(value.receiver)}.{shown(value.function)}"
    if isinstance(value, type):
        return value.__name__
    kind = type(value)
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        items = ", ".join(shown(item) for item in list(value)[:8])
        rest = ", …" if len(value) > 8 else ""
        return (
            f"{opening}{items}{rest}{closing}" if len(items) < 4 * _LONGEST_SHOWN else f"{opening}…{closing}"
        )
    if kind is dict:
        return "{…}" if value else "{}"
    text = repr(value) if isinstance(value, (*_PLAIN, Symbol)) else f"<{kind.__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def in_braces(run: Run, value: Value) -> Value:
    """For messages: an unknown part in braces, an object as its text, anything else itself."""
    if isinstance(value, Unknown):
        return value.name if value.is_text else "{" + shown(value) + "}"
    if isinstance(value, _PLAIN):
        return value
    text = text_of(run, value, Place("", 0))
    return _raw(text)


def text_of(run: Run, value: Value, place: Place) -> Value:
    """`str(value)`: a str, or an Unknown whose name is the text with unknown parts in braces."""
    if type(value) is str:
        return value
    if isinstance(value, Unknown):
        return value if value.is_text else unknown_text("{" + shown(value) + "}", place)
    if isinstance(value, Instance):
        return _instance_text(run, value, ("__str__", "__repr__"), place)
    return repr_of(run, value, place)


def repr_of(run: Run, value: Value, place: Place) -> Value:
    """`repr(value)`: a str, or an Unknown."""
    if isinstance(value, _PLAIN):
        return run.native(lambda: repr(value), place, lambda: "repr(…)")
    if isinstance(value, Unknown):
        return unknown_text("{" + shown(value) + "}", place)
    if isinstance(value, Instance):
        return _instance_text(run, value, ("__repr__",), place)
    weigh(run, value, place)
    kind = type(value)
    if kind in _BRACKETS or kind is dict:
        return _container_text(run, value, place)
    if isinstance(value, type):
        return repr(value)
    if isinstance(value, (ClassValue, Symbol)):
        return repr(value)
    if isinstance(value, (FunctionValue, NativeFunction, BoundMethod)):
        return Unknown(f"repr({shown(value)})", place)
    return Unknown(f"repr({shown(value)})", place)


def _container_text(run: Run, value: Value, place: Place) -> Value:
    if has_lost_contents(value):
        return Unknown(f"{{{LOST.name}}}", place)
    kind = type(value)
    if kind is dict:
        pairs = [(repr_of(run, key, place), repr_of(run, item, place)) for key, item in value.items()]
        parts = [part for pair in pairs for part in pair]
        text = "{" + ", ".join(f"{_raw(key)}: {_raw(item)}" for key, item in pairs) + "}"
    else:
        parts = [repr_of(run, item, place) for item in value]
        opening, closing = _BRACKETS[kind]
        if not parts and kind in (set, frozenset):
            return f"{kind.__name__}()"
        ending = "," if kind is tuple and len(parts) == 1 else ""
        text = opening + ", ".join(map(_raw, parts)) + ending + closing
    run.require_size(len(text), place)
    return unknown_text(text, place) if any(isinstance(part, Unknown) for part in parts) else text


def _raw(part: Value) -> str:
    return part.name if isinstance(part, Unknown) else str(part)


def _instance_text(run: Run, value: Instance, names: tuple[str, ...], place: Place) -> Value:
    for name in names:
        method = value.cls.find(name)
        if method is not ABSENT:
            return run.call(method, (value,), {}, place)
    kind = value.cls.kind
    if kind is ClassKind.EXCEPTION:
        return _exception_text(run, value, names, place)
    if kind in (ClassKind.ENUM, ClassKind.FLAG):
        return _member_text(run, value, names, place)
    if value.cls.data is not None:
        return _fields_text(run, value, place)
    if value.payload is not ABSENT:
        return (text_of if len(names) > 1 else repr_of)(run, value.payload, place)
    return unknown_text("{" + shown(value) + "}", place)


def _member_text(run: Run, value: Instance, names: tuple[str, ...], place: Place) -> Value:
    if len(names) == 1:
        inner = repr_of(run, value.attributes.get("_value_"), place)
        return f"<{value.label}: {inner}>" if isinstance(inner, str) else inner
    if any(entry.name in ("StrEnum", "IntEnum") for entry in value.cls.mro):
        return text_of(run, value.attributes.get("_value_"), place)
    return value.label


def _fields_text(run: Run, value: Instance, place: Place) -> Value:
    data = value.cls.data
    assert data is not None
    parts = []
    for entry in data.fields:
        if entry.shown:
            parts.append((entry.name, repr_of(run, value.attributes.get(entry.name), place)))
    text = f"{value.cls.qualified_name}({', '.join(f'{name}={_raw(part)}' for name, part in parts)})"
    return unknown_text(text, place) if any(isinstance(part, Unknown) for _, part in parts) else text


def _exception_text(run: Run, value: Instance, names: tuple[str, ...], place: Place) -> Value:
    arguments = value.attributes.get("args", ())
    if isinstance(arguments, Unknown):
        return unknown_text("{" + shown(arguments) + "}", place)
    if len(names) == 1:
        parts = [repr_of(run, item, place) for item in arguments]
        text = f"{value.cls.name}({', '.join(map(_raw, parts))})"
        return unknown_text(text, place) if any(isinstance(part, Unknown) for part in parts) else text
    if not arguments:
        return ""
    if len(arguments) > 1:
        return repr_of(run, tuple(arguments), place)
    is_key_error = any(entry.name == "KeyError" for entry in value.cls.mro)
    return (repr_of if is_key_error else text_of)(run, arguments[0], place)


def formatted(run: Run, value: Value, conversion: str, specification: Value, place: Place) -> Value:
    """One field of an f-string or of `format`: a str, or an Unknown."""
    if conversion == "r" or conversion == "a":
        value = repr_of(run, value, place)
    elif conversion == "s":
        value = text_of(run, value, place)
    if isinstance(specification, Unknown):
        return unknown_text("{" + shown(value) + "}", place)
    if isinstance(value, Unknown):
        return text_of(run, value, place)
    if isinstance(value, Instance):
        method = value.cls.find("__format__")
        if method is not ABSENT:
            return run.call(method, (value, specification), {}, place)
        value = text_of(run, value, place) if _formats_as_text(value) else unwrapped(value)
    elif not isinstance(value, _PLAIN):
        value = text_of(run, value, place)
    if isinstance(value, Unknown) or not specification:
        return value if isinstance(value, Unknown) else text_of(run, value, place)
    if re.search(r"\d{4,}", specification):
        raise run.refused("a wide field in a format", place)
    return run.native(lambda: format(value, specification), place, lambda: "format(…)")


def _formats_as_text(value: Instance) -> bool:
    return value.payload is ABSENT or value.cls.kind in (ClassKind.ENUM, ClassKind.FLAG)


def joined(run: Run, parts: list[Value], place: Place) -> Value:
    """An f-string from its parts."""
    text = "".join(_raw(part) for part in parts)
    run.require_size(len(text), place)
    return unknown_text(text, place) if any(isinstance(part, Unknown) for part in parts) else text


class _Shown:
    """Stands for an object where Python's own formatting asks for its text."""

    def __init__(self, text: str, representation: str) -> None:
        self._text = text
        self._representation = representation

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._representation


def native_text_argument(run: Run, value: Value, place: Place) -> Value:
    """A value that Python's own formatting may be given: Unknown when its text is not known."""
    if isinstance(value, (*_PLAIN, Unknown)):
        return value
    if isinstance(value, Instance) and isinstance(value.payload, _PLAIN):
        return value.payload
    text, representation = text_of(run, value, place), repr_of(run, value, place)
    if isinstance(text, Unknown) or isinstance(representation, Unknown):
        return text if isinstance(text, Unknown) else representation
    return _Shown(text, representation)


def weigh(run: Run, value: Value, place: Place) -> None:
    """Refuse a container that is small in memory and endless when it is walked, or that holds itself."""
    kind = type(value)
    if kind not in _BRACKETS and kind is not dict:
        return
    pending = [value]
    budget = run.settings.items
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is dict:
            pending.extend(entry for entry in item.values() if type(entry) in _WALKED)
            budget -= len(item)
        elif kind in _BRACKETS:
            pending.extend(entry for entry in item if type(entry) in _WALKED)
            budget -= len(item)
        budget -= 1
        if budget < 0:
            raise run.refused("a container too large to walk", place)


_WALKED = (list, tuple, set, frozenset, dict)
