"""`isinstance`, `issubclass` and `type`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    BoundMethod,
    ClassValue,
    FunctionValue,
    Instance,
    NativeFunction,
    Symbol,
    UnionType,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def is_instance(run: Run, value: Value, wanted: Value, place: Place) -> Value:
    """`isinstance(value, wanted)`: True, False, or an unknown truth."""
    if isinstance(wanted, (tuple, UnionType)):
        parts = wanted if isinstance(wanted, tuple) else wanted.members
        return _any(run, [is_instance(run, value, part, place) for part in parts], value, wanted, place)
    if wanted is object:
        return True
    if isinstance(value, Unknown) or isinstance(wanted, Unknown):
        plain = isinstance(value, (str, int, float, bytes, type(None), Symbol))
        if plain and isinstance(wanted, Unknown) and not _is_abstract(wanted):
            # No class from outside the tree makes Python's own values, other than an abstract one.
            return False
        return Unknown(f"isinstance({run.shown(value)}, {run.shown(wanted)})", place)
    if wanted is None:
        return value is None
    if isinstance(value, Instance):
        return _is_subclass(run, value.cls, wanted, value, place)
    if isinstance(wanted, type):
        if isinstance(value, ClassValue):
            return wanted is type
        if isinstance(value, (FunctionValue, NativeFunction, BoundMethod, ModuleValue, Symbol)):
            return False
        return isinstance(value, wanted)
    if isinstance(wanted, ClassValue):
        return False
    return Unknown(f"isinstance({run.shown(value)}, {run.shown(wanted)})", place)


def _is_abstract(wanted: Unknown) -> bool:
    return "abc" in wanted.name or "typing" in wanted.name or "numbers" in wanted.name


def is_subclass(run: Run, cls: Value, wanted: Value, place: Place) -> Value:
    """`issubclass(cls, wanted)`."""
    if isinstance(wanted, tuple):
        return _any(run, [is_subclass(run, cls, part, place) for part in wanted], cls, wanted, place)
    if isinstance(cls, Unknown) or isinstance(wanted, Unknown):
        return Unknown(f"issubclass({run.shown(cls)}, {run.shown(wanted)})", place)
    if isinstance(cls, type) and isinstance(wanted, type):
        return issubclass(cls, wanted)
    if isinstance(cls, ClassValue):
        return _is_subclass(run, cls, wanted, cls, place)
    if isinstance(cls, type):
        return False
    raise run.error("TypeError", "issubclass() arg 1 must be a class", place)


def _is_subclass(run: Run, cls: ClassValue, wanted: Value, value: Value, place: Place) -> Value:
    if isinstance(wanted, ClassValue) and cls.is_subclass(wanted):
        return True
    if isinstance(wanted, type):
        if wanted is object:
            return True
        native = next((entry.native_base for entry in cls.mro if entry.native_base is not None), None)
        if native is not None and issubclass(native, wanted):
            return True
    if cls.unknown_base is not None:
        return Unknown(f"isinstance({run.shown(value)}, {run.shown(wanted)})", place)
    return False


def _any(run: Run, answers: list[Value], value: Value, wanted: Value, place: Place) -> Value:
    if any(answer is True for answer in answers):
        return True
    unknown = [answer for answer in answers if isinstance(answer, Unknown)]
    if not unknown:
        return False
    if len(unknown) == 1:
        return unknown[0]
    names = " or ".join(sorted(answer.name for answer in unknown))
    return Unknown(names, place)


def type_of(run: Run, value: Value, place: Place) -> Value:
    """`type(value)`."""
    if isinstance(value, Unknown):
        return Unknown(f"type({run.shown(value)})", place)
    if isinstance(value, Instance):
        return value.cls
    if isinstance(value, ClassValue):
        return type
    if isinstance(value, (FunctionValue, NativeFunction, BoundMethod, ModuleValue, Symbol)):
        return Unknown(f"type({run.shown(value)})", place)
    return type(value)


def class_name(value: Value) -> str:
    """The name of a value's class, for messages."""
    if isinstance(value, Instance):
        return value.cls.name
    if isinstance(value, (FunctionValue, NativeFunction)):
        return "function"
    if isinstance(value, BoundMethod):
        return "method"
    if isinstance(value, ModuleValue):
        return "module"
    if isinstance(value, ClassValue):
        return "type"
    return type(value).__name__ if value is not ABSENT else "nothing"
