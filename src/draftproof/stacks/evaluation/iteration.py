"""Iteration, bounded; over an unknown value, a question for each item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.type_checks import class_name
from draftproof.stacks.evaluation.unknowns import Unknown, Value, has_lost_contents
from draftproof.stacks.evaluation.values import ABSENT, ClassKind, ClassValue, Instance
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_UNKNOWN_ITEMS = 2
"""Items that are taken from an unknown iterable before it is assumed to have no more."""


def items(run: Run, value: Value, place: Place) -> Iterator[Value]:
    """The items of an iterable."""
    if isinstance(value, Unknown) or has_lost_contents(value):
        return _unknown_items(run, value, place)
    if isinstance(value, Instance):
        return _instance_items(run, value, place)
    if isinstance(value, ClassValue) and value.kind in (ClassKind.ENUM, ClassKind.FLAG):
        return iter(list(dict.fromkeys(value.members.values())))
    kind = type(value)
    if kind in (list, tuple, str, bytes, range) or hasattr(kind, "__next__"):
        return _bounded(run, iter(value), place)
    if kind in (dict, set, frozenset) or kind.__name__ in _VIEWS:
        return _unchanged(run, value, place)
    raise run.error("TypeError", f"'{class_name(value)}' object is not iterable", place)


_VIEWS = {"dict_keys", "dict_values", "dict_items"}


def _bounded(run: Run, source: Iterator[Value], place: Place) -> Iterator[Value]:
    for count, item in enumerate(source):
        if count >= run.settings.items:
            raise run.refused(f"more than {run.settings.items} items", place)
        yield item


def _unchanged(run: Run, value: Value, place: Place) -> Iterator[Value]:
    """Python's own complaint about a dict or set that changes while it is walked."""
    source = iter(value)
    while True:
        try:
            item = next(source)
        except StopIteration:
            return
        except RuntimeError as error:
            raise run.native_error(error, place) from error
        yield item


def _unknown_items(run: Run, value: Value, place: Place) -> Iterator[Value]:
    name = run.shown(value) if isinstance(value, Unknown) else "contents changed in an unknown way"
    for number in range(_UNKNOWN_ITEMS):
        more = "an item" if number == 0 else f"more than {number} item"
        if not run.ask(f"{name} has {more}", place):
            return
        yield Unknown(f"{name}[{number}]", place)
    raise run.refused(f"a loop over the unknown {name}", place)


def _instance_items(run: Run, value: Instance, place: Place) -> Iterator[Value]:
    method = value.cls.find("__iter__")
    if method is not ABSENT:
        iterator = run.call(method, (value,), {}, place)
        if isinstance(iterator, Instance):
            return _by_next(run, iterator, place)
        return items(run, iterator, place)
    if value.payload is not ABSENT:
        return items(run, value.payload, place)
    if value.cls.unknown_base is not None:
        return _unknown_items(run, Unknown(value.label, place), place)
    if value.cls.find("__getitem__") is not ABSENT:
        raise run.refused("iteration by __getitem__", place)
    raise run.error("TypeError", f"'{value.cls.name}' object is not iterable", place)


def _by_next(run: Run, iterator: Instance, place: Place) -> Iterator[Value]:
    method = run.attribute(iterator, "__next__", place)
    while True:
        run.tick(place)
        try:
            item = run.call(method, (), {}, place)
        except Raised as raised:
            if isinstance(raised.value, Instance) and raised.value.cls.name == "StopIteration":
                return
            raise
        yield item
