"""Methods of Python's own types that evaluated code may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.assignment import set_in_dict
from draftproof.stacks.evaluation.patterns import pattern_method
from draftproof.stacks.evaluation.render import native_text_argument, weigh
from draftproof.stacks.evaluation.unknowns import (
    Touched,
    Unknown,
    Value,
    contains_unknown,
    has_lost_contents,
    lose_contents,
    unknown_text,
)
from draftproof.stacks.evaluation.values import ABSENT, Arguments, Instance, NativeFunction, unwrapped
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEXT = _words(
    """
    capitalize casefold count encode endswith find index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join lower lstrip partition
    removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines
    startswith strip swapcase title upper format center ljust rjust zfill decode hex
    """
)
_NUMBER = _words("bit_length bit_count is_integer as_integer_ratio conjugate real imag numerator")
_SET = _words("copy union intersection difference symmetric_difference issubset issuperset isdisjoint")
_PURE: dict[type, frozenset[str]] = {
    str: _TEXT - {"decode", "hex"},
    bytes: _TEXT - {"encode", "format"},
    int: _NUMBER,
    bool: _NUMBER,
    float: _NUMBER | {"hex"},
    tuple: _words("count index"),
    list: _words("count index copy"),
    dict: _words("copy keys values items __contains__"),
    set: _SET,
    frozenset: _SET,
    range: _words("count index start stop step"),
    slice: _words("start stop step indices"),
    re.Match: _words("group groups groupdict start end span string re lastgroup"),
    re.Pattern: _words("pattern flags groups"),
}
_ATTRIBUTES = _words("real imag numerator start stop step pattern flags string re lastgroup")


def native_method(run: Run, value: Value, name: str, place: Place) -> Value:
    """A method or attribute of one of Python's own values; `ABSENT` when there is none of that name."""
    kind = type(value)
    if not hasattr(kind, name):
        return ABSENT
    if name == "__class__":
        return kind
    changing = _CHANGING.get((kind, name))
    if changing is not None:
        return NativeFunction(name, lambda run, arguments: changing(run, value, arguments))
    allowed = _PURE.get(kind)
    if allowed is None or name not in allowed:
        return _not_allowed(run, value, name, place)
    if name in _ATTRIBUTES and not (kind is re.Match and name in ("start", "end")):
        return getattr(value, name)
    return NativeFunction(name, lambda run, arguments: _pure_call(run, value, name, arguments))


def _not_allowed(run: Run, value: Value, name: str, place: Place) -> Value:
    if name == "__doc__":
        return None
    if isinstance(value, re.Pattern):
        return pattern_method(value, name)
    what = f"{type(value).__name__}.{name}"
    return Unknown(what, place, reason=f"not understood: {what} at {place}")


def native_type_attribute(run: Run, kind: type, name: str, place: Place) -> Value:
    """An attribute of one of Python's own types: str.join, dict.fromkeys."""
    if name in ("__name__", "__qualname__"):
        return kind.__name__
    if name == "__module__":
        return "builtins"
    if not hasattr(kind, name):
        return ABSENT
    if kind is dict and name == "fromkeys":
        return NativeFunction("fromkeys", _from_keys)
    if kind is object and name in ("__setattr__", "__new__", "__init__", "__getattribute__"):
        return run.program.object_methods[name]
    if kind in _PURE and (name in _PURE[kind] or (kind, name) in _CHANGING):

        def unbound(run: Run, arguments: Arguments) -> Value:
            receiver, *rest = arguments.positional
            method = run.attribute(unwrapped(receiver), name, arguments.place)
            return run.call(method, rest, arguments.keywords, arguments.place)

        return NativeFunction(name, unbound)
    what = f"{kind.__name__}.{name}"
    return Unknown(what, place, reason=f"not understood: {what} at {place}")


def _from_keys(run: Run, arguments: Arguments) -> Value:
    made: dict[Value, Value] = {}
    for key in run.items(arguments.get(0, "iterable"), arguments.place):
        set_in_dict(run, made, key, arguments.get(1, "value"), arguments.place)
    return made


def _pure_call(run: Run, value: Value, name: str, arguments: Arguments) -> Value:
    """A method that changes nothing: unknown in, unknown out."""
    place = arguments.place
    positional = [unwrapped(item) for item in arguments.positional]
    keywords = {key: unwrapped(item) for key, item in arguments.keywords.items()}
    if isinstance(value, (str, bytes)) and name == "format":
        return _format(run, value, positional, keywords, place)
    if name == "join":
        positional = [
            list(run.items(item, place)) if not isinstance(item, Unknown) else item for item in positional
        ]
        positional = [
            [unwrapped(part) for part in item] if isinstance(item, list) else item for item in positional
        ]
    positional = [list(item) if hasattr(type(item), "__next__") else item for item in positional]
    called = f"{run.shown(value)}.{name}({', '.join(run.shown(item) for item in positional)})"
    if has_lost_contents(value) and name != "copy":
        return Unknown(called, place)
    if not arguments.is_complete or any(contains_unknown(item) for item in positional):
        return _in_doubt(run, name, called, value, positional, place)
    if any(contains_unknown(item) for item in keywords.values()):
        return Unknown(called, place)
    _require_small(run, value, name, positional, place)
    result = run.native(lambda: getattr(value, name)(*positional, **keywords), place, lambda: called)
    if isinstance(result, (str, bytes, list)):
        run.require_size(len(result), place)
    return result


def _in_doubt(run: Run, name: str, called: str, value: Value, positional: list[Value], place: Place) -> Value:
    if name == "join" and positional and isinstance(positional[0], list):
        return unknown_text(str(value).join(str(run.in_braces(part)) for part in positional[0]), place)
    return Unknown(called, place)


def _require_small(run: Run, value: Value, name: str, positional: list[Value], place: Place) -> None:
    """Refuse what would make a huge string before it is made."""
    if name in ("center", "ljust", "rjust", "zfill") and positional and isinstance(positional[0], int):
        run.require_size(positional[0], place)
    if (
        name == "replace"
        and len(positional) >= 2
        and all(isinstance(item, (str, bytes)) for item in positional[:2])
    ):
        run.require_size(
            (len(value) + 1) * max(1, len(positional[1])) if len(positional[1]) > 1000 else 0, place
        )
        count = value.count(positional[0]) if type(positional[0]) is type(value) else 0
        run.require_size(len(value) + count * len(positional[1]), place)
    if name == "join" and positional and isinstance(positional[0], list):
        total = sum(len(part) + len(value) for part in positional[0] if isinstance(part, (str, bytes)))
        run.require_size(total, place)
    for item in positional:
        weigh(run, item, place)


def _format(
    run: Run, template: Value, positional: list[Value], keywords: dict[str, Value], place: Place
) -> Value:
    if re.search(r"\{[^{}]*(\d{4,}|\{)|\{[^{}:!]*[.\[]", template):
        what = "a format with attributes, nested or wide fields"
        return Unknown(what, place, reason=f"not understood: {what} at {place}")
    listed = [native_text_argument(run, item, place) for item in positional]
    named = {key: native_text_argument(run, item, place) for key, item in keywords.items()}
    if any(isinstance(item, Unknown) for item in (*listed, *named.values())):
        return Unknown(f"{run.shown(template)}.format(…)", place)
    return run.native(lambda: template.format(*listed, **named), place, lambda: "format")


Changing = Callable[["Run", Value, Arguments], Value]


def _append(run: Run, target: list[Value], arguments: Arguments) -> Value:
    if not has_lost_contents(target):
        target.append(_one(run, "append", arguments))
        run.require_size(len(target), arguments.place)
    return None


def _extend(run: Run, target: list[Value], arguments: Arguments) -> Value:
    source = _one(run, "extend", arguments)
    if isinstance(source, Unknown) or has_lost_contents(source):
        lose_contents(target)
    elif not has_lost_contents(target):
        target.extend(list(run.items(source, arguments.place)))
        run.require_size(len(target), arguments.place)
    return None


def _one(run: Run, name: str, arguments: Arguments) -> Value:
    if len(arguments.positional) != 1:
        message = f"list.{name}() takes exactly one argument ({len(arguments.positional)} given)"
        raise run.error("TypeError", message, arguments.place)
    return arguments.positional[0]


def _sort(run: Run, target: list[Value], arguments: Arguments) -> Value:
    if has_lost_contents(target):
        return None
    reverse = arguments.keywords.get("reverse", False)
    ordered = sort_items(run, list(target), arguments.keywords.get("key"), reverse, arguments.place)
    if ordered is None:
        lose_contents(target)
    else:
        target[:] = ordered
    return None


def sort_items(run: Run, items: list[Value], key: Value, reverse: Value, place: Place) -> list[Value] | None:
    """Sorted; None when the order is not known."""
    keys = items if key is None else [run.call(key, (item,), {}, place) for item in items]
    if isinstance(reverse, Unknown) or any(contains_unknown(item) for item in keys):
        return None if len(items) > 1 else items
    for item in keys:
        weigh(run, item, place)
    keys = [unwrapped(item) for item in keys]
    order = run.native(
        lambda: sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse)),
        place,
        lambda: "sorted",
    )
    return None if isinstance(order, Unknown) else [items[position] for position in order]


def _changing(name: str, keyed: int) -> Changing:
    """A method that changes its container by a key or value, the first `keyed` arguments being such."""

    def change(run: Run, target: Value, arguments: Arguments) -> Value:
        place = arguments.place
        positional = [
            list(item) if hasattr(type(item), "__next__") else item for item in arguments.positional
        ]
        if has_lost_contents(target):
            return Unknown(f"{run.shown(target)}.{name}(…)", place)
        in_doubt = any(contains_unknown(item) for item in positional[:keyed])
        if in_doubt or not arguments.is_complete or any(has_lost_contents(item) for item in positional):
            if name in ("get",):
                return Unknown(f"dict.get({run.shown(positional[0])})", place)
            lose_contents(target)
            return Unknown(f"{name}({', '.join(run.shown(item) for item in positional)})", place)
        try:
            return getattr(target, name)(*positional, **arguments.keywords)
        except Touched:
            if name != "get":
                lose_contents(target)
            return Unknown(f"{name}({', '.join(run.shown(item) for item in positional)})", place)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise run.native_error(error, place) from error

    return change


def _update(run: Run, target: Value, arguments: Arguments) -> Value:
    place = arguments.place
    for source in arguments.positional:
        source = unwrapped(source)
        if isinstance(source, Unknown) or has_lost_contents(source):
            lose_contents(target)
        elif isinstance(target, set):
            values = list(run.items(source, place))
            if any(contains_unknown(item) for item in values):
                lose_contents(target)
            elif not has_lost_contents(target):
                run.native(lambda: target.update(values), place, lambda: "update")  # noqa: B023
        elif isinstance(source, dict):
            for key, value in source.items():
                set_in_dict(run, target, key, value, place)
        elif isinstance(source, Instance):
            raise run.refused("dict.update of an object", place)
        else:
            for pair in run.items(source, place):
                key, value = run.items(pair, place)
                set_in_dict(run, target, key, value, place)
    for key, value in arguments.keywords.items():
        set_in_dict(run, target, key, value, place)
    if not arguments.is_complete:
        lose_contents(target)
    return None


_CHANGING: dict[tuple[type, str], Changing] = {
    (list, "append"): _append,
    (list, "extend"): _extend,
    (list, "sort"): _sort,
    (list, "insert"): _changing("insert", 1),
    (list, "pop"): _changing("pop", 1),
    (list, "remove"): _changing("remove", 1),
    (list, "clear"): _changing("clear", 0),
    (list, "reverse"): _changing("reverse", 0),
    (dict, "get"): _changing("get", 1),
    (dict, "pop"): _changing("pop", 1),
    (dict, "popitem"): _changing("popitem", 0),
    (dict, "setdefault"): _changing("setdefault", 1),
    (dict, "clear"): _changing("clear", 0),
    (dict, "update"): _update,
    (set, "add"): _changing("add", 1),
    (set, "discard"): _changing("discard", 1),
    (set, "remove"): _changing("remove", 1),
    (set, "pop"): _changing("pop", 0),
    (set, "clear"): _changing("clear", 0),
    (set, "update"): _update,
    (set, "difference_update"): _changing("difference_update", 1),
    (set, "intersection_update"): _changing("intersection_update", 1),
}
