"""`collections` and `copy` of evaluated code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.named_tuples import make_named_tuple
from draftproof.stacks.evaluation.native_types import construct_native
from draftproof.stacks.evaluation.subscripts import set_item
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    BoundMethod,
    ClassKind,
    ClassValue,
    Instance,
    NativeFunction,
)

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def collections_module() -> dict[str, Value]:
    """What `collections` offers."""
    return {
        "OrderedDict": dict,
        "defaultdict": _default_dict(),
        "namedtuple": NativeFunction("namedtuple", _named_tuple),
    }


def _default_dict() -> ClassValue:
    cls = ClassValue("defaultdict", (dict,), {})
    cls.module = "collections"
    cls.native_base = dict

    def initialise(run: Run, arguments: Arguments) -> Value:
        value, *rest = arguments.positional
        value.attributes["default_factory"] = rest[0] if rest else None
        value.payload = construct_native(
            run, dict, Arguments(tuple(rest[1:]), arguments.keywords, arguments.place)
        )
        return None

    def missing(run: Run, arguments: Arguments) -> Value:
        value, key = arguments.positional
        factory = value.attributes.get("default_factory")
        if factory is None:
            raise run.native_error(KeyError(key), arguments.place)
        made = run.call(factory, (), {}, arguments.place)
        set_item(run, value.payload, key, made, arguments.place)
        return made

    cls.namespace["__init__"] = NativeFunction("defaultdict.__init__", initialise, {"binds": True})
    cls.namespace["__missing__"] = NativeFunction("defaultdict.__missing__", missing, {"binds": True})
    return cls


def _named_tuple(run: Run, arguments: Arguments) -> Value:
    name, fields = arguments.get(0, "typename"), arguments.get(1, "field_names")
    if isinstance(fields, Unknown) or not isinstance(name, str):
        return Unknown("namedtuple(…)", arguments.place)
    names = (
        fields.replace(",", " ").split()
        if isinstance(fields, str)
        else list(run.items(fields, arguments.place))
    )
    defaults = list(run.items(arguments.keywords.get("defaults") or (), arguments.place))
    padded = [ABSENT] * (len(names) - len(defaults)) + defaults
    cls = ClassValue(name, (tuple,), {})
    cls.run, cls.place, cls.module = run, arguments.place, "collections"
    make_named_tuple(cls, list(zip(names, padded, strict=True)))
    return cls


def copy_module() -> dict[str, Value]:
    """What `copy` offers."""
    return {
        "copy": NativeFunction("copy.copy", _copy),
        "deepcopy": NativeFunction("copy.deepcopy", _deep_copy),
    }


def _copy(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if isinstance(value, Instance):
        if value.cls.kind in (ClassKind.ENUM, ClassKind.FLAG):
            return value
        made = _empty_copy(run, value)
        made.attributes.update(value.attributes)
        made.payload = value.payload.copy() if isinstance(value.payload, (dict, list, set)) else value.payload
        return made
    return value.copy() if isinstance(value, (list, dict, set)) else value


def _empty_copy(run: Run, value: Instance) -> Instance:
    made = run.new_instance(value.cls, value.label.partition("#")[0])
    made.missing = value.missing
    made.places.update(value.places)
    return made


def _deep_copy(run: Run, arguments: Arguments) -> Value:
    return deep_copy(run, arguments.positional[0], {}, arguments)


def deep_copy(run: Run, value: Value, made: dict[int, Value], arguments: Arguments) -> Value:
    """As `copy.deepcopy`; what is not known stays the same unknown."""
    if id(value) in made:
        return made[id(value)]
    kind = type(value)
    if kind not in (list, dict, set, tuple, frozenset, Instance):
        return value
    run.tick(arguments.place)
    if kind is Instance:
        return _deep_copy_object(run, value, made, arguments)
    if kind is dict:
        copied: Value = {}
        made[id(value)] = copied
        for key, item in value.items():
            copied[deep_copy(run, key, made, arguments)] = deep_copy(run, item, made, arguments)
        return copied
    if kind is list:
        copied = []
        made[id(value)] = copied
        copied.extend(deep_copy(run, item, made, arguments) for item in value)
        return copied
    copied = kind(deep_copy(run, item, made, arguments) for item in value)
    made[id(value)] = copied
    return copied


def _deep_copy_object(run: Run, value: Instance, made: dict[int, Value], arguments: Arguments) -> Value:
    if value.cls.kind in (ClassKind.ENUM, ClassKind.FLAG):
        return value
    method = value.cls.find("__deepcopy__")
    if method is not ABSENT:
        return run.call(method, (value, {}), {}, arguments.place)
    copied = _empty_copy(run, value)
    made[id(value)] = copied
    for name, item in value.attributes.items():
        copied.attributes[name] = _rebound(item, value, copied, run, made, arguments)
    copied.payload = ABSENT if value.payload is ABSENT else deep_copy(run, value.payload, made, arguments)
    return copied


def _rebound(
    item: Value, value: Instance, copied: Instance, run: Run, made: dict[int, Value], arguments: Arguments
) -> Value:
    """A method that the caller gave to the object belongs to the copy then."""
    if isinstance(item, BoundMethod) and item.receiver is value:
        return BoundMethod(item.function, copied)
    return deep_copy(run, item, made, arguments)
