"""`typing.NamedTuple` and `collections.namedtuple`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    ClassKind,
    ClassMethod,
    ClassValue,
    DataField,
    Implementation,
    Instance,
    NativeFunction,
    PropertyValue,
)

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def make_named_tuple(cls: ClassValue, fields: Sequence[tuple[str, Value]]) -> None:
    """Give a class the fields of a named tuple: (name, default or `ABSENT`)."""
    cls.kind = ClassKind.NAMED_TUPLE
    cls.native_base = tuple
    names = tuple(name for name, _ in fields)
    listed = tuple(DataField(name, default) for name, default in fields)
    for position, name in enumerate(names):
        cls.namespace[name] = PropertyValue(NativeFunction(name, _reader(position)))
    cls.namespace["_fields"] = names
    cls.namespace["__named_fields__"] = listed
    cls.namespace["_asdict"] = NativeFunction(
        "_asdict",
        lambda run, arguments: dict(zip(names, arguments.positional[0].payload, strict=True)),
        {"binds": True},
    )
    cls.namespace["_replace"] = NativeFunction("_replace", _replace, {"binds": True})
    cls.namespace["_make"] = ClassMethod(NativeFunction("_make", _make))


def _reader(position: int) -> Implementation:
    def read(run: Run, arguments: Arguments) -> Value:
        return arguments.positional[0].payload[position]

    return read


def _replace(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    content = dict(zip(value.cls.find("_fields"), value.payload, strict=True))
    content.update(arguments.keywords)
    return run.call(value.cls, tuple(content.values()), {}, arguments.place)


def _make(run: Run, arguments: Arguments) -> Value:
    cls, items = arguments.positional
    return run.call(cls, tuple(run.items(items, arguments.place)), {}, arguments.place)


def fill_named_tuple(run: Run, value: Instance, arguments: Arguments) -> None:
    """The payload of a new named tuple."""
    fields: tuple[DataField, ...] = value.cls.find("__named_fields__")
    items: list[Value] = []
    for position, entry in enumerate(fields):
        if position < len(arguments.positional):
            items.append(arguments.positional[position])
        elif entry.name in arguments.keywords:
            items.append(arguments.keywords[entry.name])
        elif entry.default is not ABSENT:
            items.append(entry.default)
        elif not arguments.is_complete:
            items.append(Unknown(entry.name, arguments.place))
        else:
            message = f"{value.cls.name}.__new__() missing 1 required positional argument: '{entry.name}'"
            raise run.error("TypeError", message, arguments.place)
    value.payload = tuple(items)
