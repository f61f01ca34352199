"""Exceptions of evaluated code, and the two that end an evaluation's way."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import ClassKind, ClassValue
from draftproof.stacks.place import Place


class Raised(Exception):
    """Evaluated code raised an exception.

    Attributes:
        value: the exception: an `Instance`, or an `Unknown`.
        place: where it was raised.
    """

    def __init__(self, value: Value, place: Place) -> None:
        super().__init__(repr(value))
        self.value = value
        self.place = place


class Refused(Exception):
    """This way cannot be followed further: a bound was reached, or something is not supported."""

    def __init__(self, reason: str, place: Place) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


def builtin_exceptions() -> Mapping[str, ClassValue]:
    """Python's exception classes as values, with their order of bases."""
    made: dict[type, ClassValue] = {}
    for candidate in vars(builtins).values():
        if isinstance(candidate, type) and issubclass(candidate, BaseException):
            _exception_class(candidate, made)
    return {
        name: made[candidate]
        for name, candidate in vars(builtins).items()
        if isinstance(candidate, type) and candidate in made
    }


def _exception_class(native: type, made: dict[type, ClassValue]) -> ClassValue:
    if native not in made:
        bases = tuple(_exception_class(base, made) for base in native.__bases__ if base is not object)
        value = ClassValue(native.__name__, bases, {})
        value.kind = ClassKind.EXCEPTION
        made[native] = value
        value.mro = tuple(_exception_class(base, made) for base in native.__mro__ if base is not object)
    return made[native]
