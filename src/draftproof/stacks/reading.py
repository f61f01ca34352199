"""What a query saw in a source: a value, its absence, or a form that the query does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from draftproof.stacks.place import Place

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """The answer of one query about a source.

    Attributes:
        value: what was found; None when it is not there, or when the source was not understood.
        sentence: what was seen, or, where nothing was found, what was looked for and where.
        places: lines that show it, the deciding one first.
        understood: False when the source does not have the form that the query knows. Then nothing follows
            from `value`, and no claim that rests on it can be more than UNKNOWN.
    """

    value: T | None
    sentence: str
    places: tuple[Place, ...] = ()
    understood: bool = True

    @property
    def is_found(self) -> bool:
        """There is a value."""
        return self.value is not None


def found(value: T, sentence: str, *places: Place) -> Reading[T]:
    """It is there."""
    return Reading(value, sentence, places)


def absent(sentence: str, *places: Place) -> Reading[T]:
    """The source was understood, and it is not there."""
    return Reading(None, sentence, places)


def not_understood(sentence: str, *places: Place) -> Reading[T]:
    """The source does not have the form that the query knows; `sentence` says what was looked for."""
    return Reading(None, sentence, places, understood=False)
