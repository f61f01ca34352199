"""Python's builtin functions for evaluated code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation import operators, render
from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.native_methods import sort_items
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.type_checks import is_instance, is_subclass
from draftproof.stacks.evaluation.unknowns import Unknown, Value, contains_unknown, has_lost_contents
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    BoundMethod,
    ClassKind,
    ClassMethod,
    ClassValue,
    FunctionValue,
    Implementation,
    Instance,
    NativeFunction,
    PropertyValue,
    StaticMethod,
    SuperValue,
    unwrapped,
)

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_TYPES = (str, int, float, bool, list, tuple, dict, set, frozenset, object, type, range, slice, bytes)


def builtin_values(exceptions: Mapping[str, ClassValue]) -> Mapping[str, Value]:
    """Every builtin name."""
    values: dict[str, Value] = {kind.__name__: kind for kind in _TYPES}
    values.update(exceptions)
    values.update({name: NativeFunction(name, function) for name, function in _FUNCTIONS.items()})
    values.update({"NotImplemented": NotImplemented, "Ellipsis": Ellipsis, "__debug__": True})
    return values


def _length(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if isinstance(value, Instance):
        method = value.cls.find("__len__")
        if method is not ABSENT:
            return run.call(method, (value,), {}, arguments.place)
        value = unwrapped(value)
    if isinstance(value, ClassValue) and value.kind is ClassKind.ENUM:
        return len(set(value.members.values()))
    if isinstance(value, Unknown) or has_lost_contents(value):
        return Unknown(f"len({run.shown(value)})", arguments.place)
    if isinstance(value, Instance):
        if value.cls.unknown_base is not None:
            return Unknown(f"len({value.label})", arguments.place)
        message = f"object of type '{value.cls.name}' has no len()"
        raise run.error("TypeError", message, arguments.place)
    return run.native(lambda: len(value), arguments.place, lambda: "len")


def _enumerate(run: Run, arguments: Arguments) -> Value:
    start = arguments.get(1, "start", 0)
    items = list(run.items(arguments.positional[0], arguments.place))
    if isinstance(start, Unknown):
        return iter([(Unknown(f"{run.shown(start)} + {i}"), item) for i, item in enumerate(items)])
    return iter(list(enumerate(items, start)))


def _zip(run: Run, arguments: Arguments) -> Value:
    columns = [list(run.items(item, arguments.place)) for item in arguments.positional]
    strict = arguments.keywords.get("strict", False) is True
    return iter(run.native(lambda: list(zip(*columns, strict=strict)), arguments.place, lambda: "zip"))


def _any(run: Run, arguments: Arguments) -> Value:
    return _quantified(run, arguments, stops_on=True)


def _all(run: Run, arguments: Arguments) -> Value:
    return _quantified(run, arguments, stops_on=False)


def _quantified(run: Run, arguments: Arguments, stops_on: bool) -> Value:
    source = arguments.positional[0]
    name = "any" if stops_on else "all"
    if isinstance(source, Unknown) or has_lost_contents(source):
        return Unknown(f"{name}({run.shown(source)})", arguments.place)
    in_doubt: list[Unknown] = []
    for item in run.items(source, arguments.place):
        known = run.assumed(item) if isinstance(item, Unknown) else run.truth(item, arguments.place)
        if known is stops_on:
            return stops_on
        if known is None:
            in_doubt.append(item)
    if not in_doubt:
        return not stops_on
    if len(in_doubt) == 1:
        return in_doubt[0]
    listed = f" {'or' if stops_on else 'and'} ".join(run.shown(item) for item in in_doubt)
    return Unknown(f"({listed})", arguments.place)


def _sorted(run: Run, arguments: Arguments) -> Value:
    source = arguments.positional[0]
    if isinstance(source, Unknown) or has_lost_contents(source):
        return Unknown(f"sorted({run.shown(source)})", arguments.place)
    items = list(run.items(source, arguments.place))
    reverse = arguments.keywords.get("reverse", False)
    ordered = sort_items(run, items, arguments.keywords.get("key"), reverse, arguments.place)
    return Unknown(f"sorted({run.shown(items)})", arguments.place) if ordered is None else ordered


def _extreme(name: str) -> Implementation:
    def find(run: Run, arguments: Arguments) -> Value:
        place = arguments.place
        if len(arguments.positional) == 1:
            source = arguments.positional[0]
            if isinstance(source, Unknown) or has_lost_contents(source):
                return Unknown(f"{name}({run.shown(source)})", place)
            items = list(run.items(source, place))
        else:
            items = list(arguments.positional)
        if not items:
            if "default" in arguments.keywords:
                return arguments.keywords["default"]
            raise run.error("ValueError", f"{name}() arg is an empty sequence", place)
        key = arguments.keywords.get("key")
        keys = items if key is None else [run.call(key, (item,), {}, place) for item in items]
        if any(contains_unknown(item) for item in keys):
            return Unknown(f"{name}({', '.join(run.shown(item) for item in items)})", place)
        best = 0
        for position in range(1, len(items)):
            symbol = ">" if name == "max" else "<"
            if run.truth(operators.compare(run, symbol, keys[position], keys[best], place), place):
                best = position
        return items[best]

    return find


def _sum(run: Run, arguments: Arguments) -> Value:
    total: Value = arguments.get(1, "start", 0)
    source = arguments.positional[0]
    if isinstance(source, Unknown) or has_lost_contents(source):
        return Unknown(f"sum({run.shown(source)})", arguments.place)
    for item in run.items(source, arguments.place):
        run.tick(arguments.place)
        total = operators.binary(run, "+", total, item, arguments.place)
    return total


def _map(run: Run, arguments: Arguments) -> Value:
    function, *sources = arguments.positional
    columns = [list(run.items(item, arguments.place)) for item in sources]
    rows = zip(*columns, strict=False)
    return iter([run.call(function, row, {}, arguments.place) for row in rows])


def _filter(run: Run, arguments: Arguments) -> Value:
    function, source = arguments.positional
    kept = []
    for item in run.items(source, arguments.place):
        test = item if function is None else run.call(function, (item,), {}, arguments.place)
        if run.truth(test, arguments.place):
            kept.append(item)
    return iter(kept)


def _reversed(run: Run, arguments: Arguments) -> Value:
    source = arguments.positional[0]
    return iter(list(run.items(source, arguments.place))[::-1])


def _get_attribute(run: Run, arguments: Arguments) -> Value:
    value, name, *default = arguments.positional
    if not isinstance(name, str):
        return Unknown(f"getattr({run.shown(value)}, {run.shown(name)})", arguments.place)
    if not default:
        return run.attribute(value, name, arguments.place)
    try:
        return run.attribute(value, name, arguments.place)
    except Raised as raised:
        if _is_attribute_error(raised):
            return default[0]
        raise


def _is_attribute_error(raised: Raised) -> bool:
    value = raised.value
    return isinstance(value, Instance) and any(entry.name == "AttributeError" for entry in value.cls.mro)


def _has_attribute(run: Run, arguments: Arguments) -> Value:
    value, name = arguments.positional
    try:
        found = run.attribute(value, name, arguments.place) if isinstance(name, str) else Unknown("hasattr")
    except Raised as raised:
        if _is_attribute_error(raised):
            return False
        raise
    if isinstance(found, Unknown) and not _holds(value, name):
        return Unknown(f"hasattr({run.shown(value)}, {run.shown(name)})", arguments.place)
    return True


def _holds(value: Value, name: str) -> bool:
    """Whether an attribute is there, though its value is not known."""
    if isinstance(value, Instance):
        return name in value.attributes or value.cls.find(name) is not ABSENT
    return isinstance(value, (ClassValue, ModuleValue))


def _set_attribute(run: Run, arguments: Arguments) -> Value:
    value, name, assigned = arguments.positional
    if not isinstance(name, str):
        raise run.refused("setattr with an unknown name", arguments.place)
    run.set_attribute(value, name, assigned, arguments.place)
    return None


def _delete_attribute(run: Run, arguments: Arguments) -> Value:
    value, name = arguments.positional
    if isinstance(value, Instance) and isinstance(name, str):
        if name not in value.attributes:
            message = f"'{value.cls.name}' object has no attribute '{name}'"
            raise run.error("AttributeError", message, arguments.place)
        del value.attributes[name]
    return None


def _super(run: Run, arguments: Arguments) -> Value:
    first = arguments.positional[0]
    if not isinstance(first, Frame):
        receiver = arguments.positional[1] if len(arguments.positional) > 1 else None
        if isinstance(first, ClassValue) and receiver is not None:
            return SuperValue(first, receiver)
        return Unknown("super(…)", arguments.place)
    frame: Frame | None = first
    while frame is not None:
        function = frame.function
        if function is not None and function.owner is not None:
            names = (*function.code.arguments.posonlyargs, *function.code.arguments.args)
            if names and names[0].arg in frame.names:
                return SuperValue(function.owner, frame.names[names[0].arg])
        frame = frame.parent
    raise run.error("RuntimeError", "super(): no arguments", arguments.place)


def _callable(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if isinstance(value, Unknown):
        return Unknown(f"callable({run.shown(value)})", arguments.place)
    if isinstance(value, Instance):
        return value.cls.find("__call__") is not ABSENT
    return isinstance(value, (FunctionValue, BoundMethod, NativeFunction, ClassValue, type))


def _next(run: Run, arguments: Arguments) -> Value:
    source, *default = arguments.positional
    if isinstance(source, Unknown):
        return Unknown(f"next({run.shown(source)})", arguments.place)
    if isinstance(source, Instance):
        return run.call(run.attribute(source, "__next__", arguments.place), (), {}, arguments.place)
    if not hasattr(type(source), "__next__"):
        message = f"'{type(source).__name__}' object is not an iterator"
        raise run.error("TypeError", message, arguments.place)
    marker = object()
    found = next(source, marker)
    if found is not marker:
        return found
    if default:
        return default[0]
    raise Raised(run.new_instance(run.exceptions["StopIteration"]), arguments.place)


def _iter(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if isinstance(value, Unknown):
        return Unknown(f"iter({run.shown(value)})", arguments.place)
    if hasattr(type(value), "__next__"):
        return value
    items: Iterator[Value] = run.items(value, arguments.place)
    return iter(list(items))


def _native(name: str, function: Callable[..., Value], dunder: str = "") -> Implementation:
    """A builtin that Python itself carries out on known numbers and strings."""

    def carry_out(run: Run, arguments: Arguments) -> Value:
        first = arguments.positional[0] if arguments.positional else None
        if dunder and isinstance(first, Instance):
            method = first.cls.find(dunder)
            if method is not ABSENT:
                return run.call(method, arguments.positional, {}, arguments.place)
        positional = [unwrapped(item) for item in arguments.positional]
        if any(contains_unknown(item) for item in positional):
            return Unknown(f"{name}({', '.join(run.shown(item) for item in positional)})", arguments.place)
        return run.native(lambda: function(*positional), arguments.place, lambda: name)

    return carry_out


def _power(run: Run, arguments: Arguments) -> Value:
    if len(arguments.positional) == 3:
        return _native("pow", pow)(run, arguments)
    left, right = arguments.positional
    return operators.binary(run, "**", left, right, arguments.place)


def _format(run: Run, arguments: Arguments) -> Value:
    return render.formatted(
        run, arguments.positional[0], "", arguments.get(1, "format_spec", ""), arguments.place
    )


def _property(run: Run, arguments: Arguments) -> Value:
    return PropertyValue(arguments.get(0, "fget"), arguments.get(1, "fset"))


def _names_of(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0] if arguments.positional else None
    if isinstance(value, Instance):
        return value.attributes
    return Unknown(f"vars({run.shown(value)})", arguments.place)


def _identity(run: Run, arguments: Arguments) -> Value:
    return Unknown(f"id({run.shown(arguments.positional[0])})", arguments.place)


def _hash(run: Run, arguments: Arguments) -> Value:
    value = arguments.positional[0]
    if contains_unknown(value):
        return Unknown(f"hash({run.shown(value)})", arguments.place)
    return run.native(lambda: hash(value), arguments.place, lambda: "hash")


def _is_instance(run: Run, arguments: Arguments) -> Value:
    value, wanted = arguments.positional
    return is_instance(run, value, wanted, arguments.place)


def _is_subclass(run: Run, arguments: Arguments) -> Value:
    value, wanted = arguments.positional
    return is_subclass(run, value, wanted, arguments.place)


_FUNCTIONS: dict[str, Implementation] = {
    "len": _length,
    "enumerate": _enumerate,
    "zip": _zip,
    "any": _any,
    "all": _all,
    "sorted": _sorted,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "sum": _sum,
    "map": _map,
    "filter": _filter,
    "reversed": _reversed,
    "getattr": _get_attribute,
    "hasattr": _has_attribute,
    "setattr": _set_attribute,
    "delattr": _delete_attribute,
    "super": _super,
    "callable": _callable,
    "next": _next,
    "iter": _iter,
    "abs": _native("abs", abs, "__abs__"),
    "round": _native("round", round, "__round__"),
    "divmod": _native("divmod", divmod),
    "ord": _native("ord", ord),
    "chr": _native("chr", chr),
    "hex": _native("hex", hex),
    "bin": _native("bin", bin),
    "oct": _native("oct", oct),
    "hash": _hash,
    "pow": _power,
    "format": _format,
    "id": _identity,
    "vars": _names_of,
    "globals": lambda run, arguments: Unknown("globals()", arguments.place),
    "repr": lambda run, arguments: render.repr_of(run, arguments.positional[0], arguments.place),
    "print": lambda run, arguments: None,
    "isinstance": _is_instance,
    "issubclass": _is_subclass,
    "property": _property,
    "staticmethod": lambda run, arguments: StaticMethod(arguments.positional[0]),
    "classmethod": lambda run, arguments: ClassMethod(arguments.positional[0]),
}
