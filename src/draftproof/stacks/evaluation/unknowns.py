"""Values that are not known, and containers whose contents are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from draftproof.stacks.place import Place

Value: TypeAlias = Any
"""A value of evaluated code: one of Python's own types or of the classes of this module and `values`."""


class Touched(Exception):
    """Python's own code asked an `Unknown` for something that only a known value can answer."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.name)
        self.unknown = unknown


@dataclass(frozen=True)
class Relation:
    """What an unknown truth says about another unknown: that it equals, is, or is among constants.

    Attributes:
        subject: name of the unknown that it is about.
        constants: the values that make it true.
    """

    subject: str
    constants: tuple[Value, ...]


class Unknown:
    """A value that is not known.

    Args:
        name: what it is, in the words of the code that made it: "torch.cuda.is_available()". Two unknowns
            of one name are taken to be the same value: what is assumed about one holds for the other.
        place: where it came up.
        reason: why it is not known, when the evaluator did not understand something; empty otherwise.
        negated: it is the opposite of what `name` says.
        relation: what it says about another unknown, when it is a comparison with constants.

    Attributes:
        is_text: it is a string of which parts are known; the name is the text, unknown parts in braces.
    """

    __slots__ = ("is_text", "name", "negated", "place", "reason", "relation")

    def __init__(
        self,
        name: str,
        place: Place | None = None,
        reason: str = "",
        negated: bool = False,
        relation: Relation | None = None,
    ) -> None:
        self.name = name
        self.place = place
        self.reason = reason
        self.negated = negated
        self.relation = relation
        self.is_text = False

    def __repr__(self) -> str:
        return f"Unknown({'not ' if self.negated else ''}{self.name})"

    def _touch(self, *_: object) -> NoReturn:
        raise Touched(self)

    __bool__ = __len__ = __iter__ = __hash__ = __str__ = __index__ = __int__ = __float__ = _touch
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = _touch
    __format__ = __add__ = __radd__ = __mul__ = __rmul__ = __mod__ = _touch


def unknown_text(text: str, place: Place | None) -> Unknown:
    """A string of which parts are unknown; these stand in braces."""
    made = Unknown(text, place)
    made.is_text = True
    return made


class _LostContents(Unknown):
    """The only item of a container whose contents are not known. It can be a key, unlike other unknowns."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        if other is self:
            return True
        raise Touched(self)


LOST = _LostContents("contents of a container that was changed in an unknown way")


def has_lost_contents(value: Value) -> bool:
    """Whether it is a container whose contents are not known."""
    kind = type(value)
    if kind is list:
        return len(value) == 1 and value[0] is LOST
    if kind is dict or kind is set:
        return len(value) == 1 and next(iter(value)) is LOST
    return False


def lose_contents(value: Value) -> None:
    """Mark a container as changed in an unknown way."""
    kind = type(value)
    if kind is list:
        value[:] = [LOST]
    elif kind is dict:
        value.clear()
        value[LOST] = LOST
    elif kind is set:
        value.clear()
        value.add(LOST)


_WALKED = frozenset({list, tuple, set, frozenset, dict})
_LARGEST_WALK = 100_000


def contains_unknown(value: Value) -> bool:
    """Whether an unknown is in it, at any level of Python's own containers.

    A container too large to be walked, or one that holds itself, counts as holding an unknown.
    """
    kind = type(value)
    if kind not in _WALKED:
        return kind is Unknown or kind is _LostContents
    pending = [value]
    budget = _LARGEST_WALK
    while pending:
        container = pending.pop()
        items = (*container, *container.values()) if type(container) is dict else container
        budget -= len(items) + 1
        if budget < 0:
            return True
        for item in items:
            kind = type(item)
            if kind is Unknown or kind is _LostContents:
                return True
            if kind in _WALKED:
                pending.append(item)
    return False
