"""`container[index]`: read, assign, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import (
    Touched,
    Unknown,
    Value,
    contains_unknown,
    has_lost_contents,
    lose_contents,
)
from draftproof.stacks.evaluation.values import (
    ABSENT,
    ClassKind,
    ClassValue,
    Instance,
    LiteralType,
    NativeFunction,
    UnionType,
    unwrapped,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def get_item(run: Run, container: Value, index: Value, place: Place) -> Value:
    """`container[index]`."""
    if type(container) is Instance:
        method = container.cls.find("__getitem__")
        if method is not ABSENT:
            return run.call(method, (container, index), {}, place)
        if container.payload is ABSENT:
            if container.cls.unknown_base is not None:
                return Unknown(f"{container.label}[{run.shown(index)}]", place)
            message = f"'{container.cls.name}' object is not subscriptable"
            raise run.error("TypeError", message, place)
        if isinstance(container.payload, dict) and container.cls.find("__missing__") is not ABSENT:
            return _get_or_make(run, container, index, place)
        container = container.payload
    if isinstance(container, Unknown):
        return Unknown(f"{run.shown(container)}[{run.shown(index)}]", place)
    if isinstance(container, ClassValue):
        return _class_item(run, container, index, place)
    if isinstance(container, (type, UnionType)):
        return container
    if isinstance(container, NativeFunction):
        if container.name == "Literal":
            return _literal(index)
        return Unknown(f"{container.name}[…]", place)
    if contains_unknown(index) or has_lost_contents(container):
        return Unknown(f"{run.shown(container)}[{run.shown(index)}]", place)
    index = unwrapped(index) if not isinstance(container, dict) else index
    name = f"{run.shown(container)}[{run.shown(index)}]"
    return run.native(lambda: container[index], place, lambda: name)


def _get_or_make(run: Run, container: Instance, index: Value, place: Place) -> Value:
    found = run.native(lambda: index in container.payload, place, lambda: container.label)
    if found is True:
        return container.payload[index]
    if isinstance(found, Unknown) or contains_unknown(index):
        return Unknown(f"{container.label}[{run.shown(index)}]", place)
    return run.call(container.cls.find("__missing__"), (container, index), {}, place)


def _class_item(run: Run, container: ClassValue, index: Value, place: Place) -> Value:
    """A member of an enum by name; a generic class with parameters is the class."""
    if container.kind not in (ClassKind.ENUM, ClassKind.FLAG):
        return container
    if isinstance(index, Unknown):
        return Unknown(f"{container.name}[{run.shown(index)}]", place)
    member = container.members.get(index)
    if member is None:
        raise run.native_error(KeyError(index), place)
    return member


def _literal(index: Value) -> LiteralType:
    values: list[Value] = []
    for item in index if type(index) is tuple else (index,):
        values.extend(item.values if isinstance(item, LiteralType) else (item,))
    return LiteralType(tuple(dict.fromkeys(values)))


def set_item(run: Run, container: Value, index: Value, value: Value, place: Place) -> None:
    """`container[index] = value`."""
    if type(container) is Instance:
        method = container.cls.find("__setitem__")
        if method is not ABSENT:
            run.call(method, (container, index, value), {}, place)
            return
        container = unwrapped(container)
    if isinstance(container, Unknown) or has_lost_contents(container):
        return
    if contains_unknown(index) or (isinstance(index, slice) and contains_unknown(value)):
        lose_contents(container)
        return
    if isinstance(index, slice):
        value = list(run.items(value, place))
    try:
        container[index] = value
    except Touched:
        lose_contents(container)
        return
    except (TypeError, IndexError, KeyError, ValueError) as error:
        raise run.native_error(error, place) from error
    if isinstance(container, (list, dict)):
        run.require_size(len(container), place)


def delete_item(run: Run, container: Value, index: Value, place: Place) -> None:
    """`del container[index]`."""
    if type(container) is Instance:
        method = container.cls.find("__delitem__")
        if method is not ABSENT:
            run.call(method, (container, index), {}, place)
            return
        container = unwrapped(container)
    if isinstance(container, Unknown) or has_lost_contents(container):
        return
    if contains_unknown(index):
        lose_contents(container)
        return
    try:
        del container[index]
    except Touched:
        lose_contents(container)
    except (TypeError, IndexError, KeyError) as error:
        raise run.native_error(error, place) from error
