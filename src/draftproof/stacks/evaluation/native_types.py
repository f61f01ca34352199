"""Calls of Python's own types: `int(x)`, `list(x)`, `dict(a=1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.assignment import make_set, mapping_content, set_in_dict
from draftproof.stacks.evaluation.type_checks import type_of
from draftproof.stacks.evaluation.unknowns import Unknown, Value, has_lost_contents, lose_contents
from draftproof.stacks.evaluation.values import ABSENT, Arguments, ClassValue, Instance, unwrapped

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def construct_native(run: Run, kind: type, arguments: Arguments) -> Value:
    """Call one of Python's own types."""
    maker = _MAKERS.get(kind)
    if maker is None:
        what = f"a call of {kind.__name__}"
        return Unknown(what, arguments.place, reason=f"not understood: {what} at {arguments.place}")
    return maker(run, arguments)


def _object(run: Run, arguments: Arguments) -> Value:
    cls = ClassValue("object", (), {})
    return run.new_instance(cls)


def _type(run: Run, arguments: Arguments) -> Value:
    if len(arguments.positional) != 1:
        return Unknown("type(…)", arguments.place, reason=f"not understood: type() at {arguments.place}")
    return type_of(run, arguments.positional[0], arguments.place)


def _text(run: Run, arguments: Arguments) -> Value:
    if not arguments.positional:
        return ""
    if len(arguments.positional) > 1:
        return Unknown("str(…)", arguments.place)
    return run.text_of(arguments.positional[0], arguments.place)


def _truth(run: Run, arguments: Arguments) -> Value:
    if not arguments.positional:
        return False
    value = arguments.positional[0]
    if isinstance(value, Unknown):
        return value if _is_truth(value) else Unknown(f"bool({run.shown(value)})", arguments.place)
    return run.truth(value, arguments.place)


def _is_truth(value: Unknown) -> bool:
    """Comparisons are truths already."""
    return value.relation is not None or value.negated


def _number(kind: type, dunders: tuple[str, ...]) -> Callable[[Run, Arguments], Value]:
    def make(run: Run, arguments: Arguments) -> Value:
        positional = list(arguments.positional)
        if positional and isinstance(positional[0], Instance):
            for name in dunders:
                method = positional[0].cls.find(name)
                if method is not ABSENT:
                    return run.call(method, (positional[0],), {}, arguments.place)
            positional[0] = unwrapped(positional[0])
        if any(isinstance(item, Unknown) for item in positional):
            return Unknown(f"{kind.__name__}({run.shown(positional[0])})", arguments.place)
        if positional and isinstance(positional[0], (str, bytes)):
            run.require_size(len(positional[0]), arguments.place)
        made = run.native(
            lambda: kind(*positional, **arguments.keywords), arguments.place, lambda: kind.__name__
        )
        if isinstance(made, int):
            run.require_bits(made.bit_length(), arguments.place)
        return made

    return make


def _sequence(kind: type) -> Callable[[Run, Arguments], Value]:
    def make(run: Run, arguments: Arguments) -> Value:
        if not arguments.positional:
            return kind()
        source = arguments.positional[0]
        if has_lost_contents(source):
            return list(source) if kind is list else Unknown(f"{kind.__name__}(…)", arguments.place)
        if isinstance(source, Unknown):
            return Unknown(f"{kind.__name__}({run.shown(source)})", arguments.place)
        return kind(list(run.items(source, arguments.place)))

    return make


def _set(run: Run, arguments: Arguments) -> Value:
    if not arguments.positional:
        return set()
    source = arguments.positional[0]
    if isinstance(source, Unknown):
        return Unknown(f"set({run.shown(source)})", arguments.place)
    if has_lost_contents(source):
        made: set[Value] = set()
        lose_contents(made)
        return made
    return make_set(run, run.items(source, arguments.place), arguments.place)


def _frozen_set(run: Run, arguments: Arguments) -> Value:
    made = _set(run, arguments)
    if isinstance(made, Unknown) or has_lost_contents(made):
        return Unknown("frozenset(…)", arguments.place)
    return frozenset(made)


def _dict(run: Run, arguments: Arguments) -> Value:
    made: dict[Value, Value] = {}
    place = arguments.place
    if arguments.positional:
        source = unwrapped(arguments.positional[0])
        if isinstance(source, Unknown):
            return Unknown(f"dict({run.shown(source)})", place)
        if isinstance(source, (dict, Instance)):
            content = mapping_content(run, source, place)
            if content is None:
                lose_contents(made)
            else:
                made.update(content)
        else:
            for pair in run.items(source, place):
                entry = pair if isinstance(pair, Unknown) else list(run.items(pair, place))
                if isinstance(entry, Unknown):
                    lose_contents(made)
                elif len(entry) != 2:
                    message = (
                        f"dictionary update sequence element #{len(made)} has length {len(entry)}; "
                        "2 is required"
                    )
                    raise run.error("ValueError", message, place)
                else:
                    set_in_dict(run, made, entry[0], entry[1], place)
    for key, value in arguments.keywords.items():
        set_in_dict(run, made, key, value, place)
    if not arguments.is_complete:
        lose_contents(made)
    return made


def _indices(kind: type) -> Callable[[Run, Arguments], Value]:
    def make(run: Run, arguments: Arguments) -> Value:
        positional = [unwrapped(item) for item in arguments.positional]
        if any(isinstance(item, Unknown) for item in positional):
            listed = ", ".join(run.shown(item) for item in positional)
            return Unknown(f"{kind.__name__}({listed})", arguments.place)
        return run.native(lambda: kind(*positional), arguments.place, lambda: kind.__name__)

    return make


def _bytes(run: Run, arguments: Arguments) -> Value:
    positional = arguments.positional
    if any(isinstance(item, Unknown) for item in positional) or not positional:
        return b"" if not positional else Unknown("bytes(…)", arguments.place)
    if isinstance(positional[0], int):
        run.require_size(positional[0], arguments.place)
    return run.native(lambda: bytes(*positional), arguments.place, lambda: "bytes")


_MAKERS: dict[type, Callable[[Run, Arguments], Value]] = {
    object: _object,
    type: _type,
    str: _text,
    bool: _truth,
    int: _number(int, ("__int__", "__index__")),
    float: _number(float, ("__float__",)),
    list: _sequence(list),
    tuple: _sequence(tuple),
    set: _set,
    frozenset: _frozen_set,
    dict: _dict,
    range: _indices(range),
    slice: _indices(slice),
    bytes: _bytes,
}
