"""`functools` of evaluated code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import Arguments, NativeFunction, PropertyValue

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def identity(name: str) -> NativeFunction:
    """A decorator that changes nothing that an evaluation could see; with or without its options."""

    def decorate(run: Run, arguments: Arguments) -> Value:
        if arguments.positional and not isinstance(arguments.positional[0], (int, type(None))):
            return arguments.positional[0]
        return NativeFunction(name, lambda run, given: given.positional[0])

    return NativeFunction(name, decorate)


def functools_module() -> dict[str, Value]:
    """What `functools` offers. Caches are left out: a function that is pure gives the same without."""
    return {
        "partial": NativeFunction("functools.partial", _partial),
        "lru_cache": identity("lru_cache"),
        "cache": identity("cache"),
        "cached_property": NativeFunction(
            "cached_property",
            lambda run, arguments: PropertyValue(arguments.positional[0], is_cached=True),
        ),
        "wraps": NativeFunction("wraps", lambda run, arguments: identity("wraps")),
        "reduce": NativeFunction("functools.reduce", _reduce),
        "total_ordering": identity("total_ordering"),
    }


def _partial(run: Run, arguments: Arguments) -> Value:
    function, *first = arguments.positional

    def call(run: Run, given: Arguments) -> Value:
        merged = Arguments(
            (*first, *given.positional),
            {**arguments.keywords, **given.keywords},
            given.place,
            arguments.is_complete and given.is_complete,
        )
        return run.call_with(function, merged)

    made = NativeFunction(f"partial({run.shown(function)})", call)
    made.attributes.update({"func": function, "args": tuple(first), "keywords": dict(arguments.keywords)})
    return made


def _reduce(run: Run, arguments: Arguments) -> Value:
    function, source, *initial = arguments.positional
    items = list(run.items(source, arguments.place))
    if not initial and not items:
        message = "reduce() of empty iterable with no initial value"
        raise run.error("TypeError", message, arguments.place)
    total = initial[0] if initial else items.pop(0)
    for item in items:
        total = run.call(function, (total, item), {}, arguments.place)
    return total
