"""Arithmetic, comparison and truth, on known and unknown values, within bounds."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.render import native_text_argument, weigh
from draftproof.stacks.evaluation.unknowns import (
    Relation,
    Touched,
    Unknown,
    Value,
    contains_unknown,
    has_lost_contents,
    lose_contents,
    unknown_text,
)
from draftproof.stacks.evaluation.values import (
    ABSENT,
    ClassKind,
    ClassValue,
    Instance,
    LiteralType,
    Symbol,
    UnionType,
    unwrapped,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_BINARY: dict[str, tuple[Callable[[Value, Value], Value], str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
}
_IN_PLACE: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.iadd,
    "*": operator.imul,
    "|": operator.ior,
    "&": operator.iand,
    "-": operator.isub,
    "^": operator.ixor,
}
_ORDER: dict[str, tuple[Callable[[Value, Value], Value], str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
_UNARY: dict[str, tuple[Callable[[Value], Value], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
_TYPE_LIKE = (type, ClassValue, UnionType, LiteralType)
_SIMPLE = frozenset({str, int, bool, float})
"""Python compares two of these without fail; most of what a loader compares are names."""


def binary(run: Run, symbol: str, left: Value, right: Value, place: Place) -> Value:
    """`left symbol right`."""
    function, dunder, reflected = _BINARY[symbol]
    if type(left) is Instance or type(right) is Instance:
        answer = _by_method(run, dunder, reflected, left, right, place)
        if answer is not ABSENT:
            return answer
        left, right = unwrapped(left), unwrapped(right)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return Unknown(f"{run.shown(left)} {symbol} {run.shown(right)}", place)
    if symbol == "|" and (isinstance(left, _TYPE_LIKE) or isinstance(right, _TYPE_LIKE)):
        return UnionType((left, right))
    if symbol == "%" and isinstance(left, (str, bytes)):
        return _percent(run, left, right, place)
    if has_lost_contents(left) or has_lost_contents(right):
        return Unknown(f"{run.shown(left)} {symbol} {run.shown(right)}", place)
    _require_bounded(run, symbol, left, right, place)
    return run.native(lambda: function(left, right), place, lambda: f"{run.shown(left)} {symbol} …")


def in_place(run: Run, symbol: str, left: Value, right: Value, place: Place) -> Value:
    """`left symbol= right`; a list, set or dict is changed itself."""
    kind = type(left)
    if kind not in (list, set, dict) or symbol not in _IN_PLACE:
        return binary(run, symbol, left, right, place)
    right = unwrapped(right)
    if isinstance(right, Unknown) or has_lost_contents(right) or has_lost_contents(left):
        lose_contents(left)
        return left
    if kind is list and symbol == "+":
        left.extend(run.items(right, place))
        run.require_size(len(left), place)
        return left
    _require_bounded(run, symbol, left, right, place)
    function = _IN_PLACE[symbol]
    return run.native(lambda: function(left, right), place, lambda: f"{run.shown(left)} {symbol}= …")


def unary(run: Run, symbol: str, operand: Value, place: Place) -> Value:
    """`-x`, `+x`, `~x`."""
    function, dunder = _UNARY[symbol]
    if type(operand) is Instance:
        method = operand.cls.find(dunder)
        if method is not ABSENT:
            return run.call(method, (operand,), {}, place)
        operand = unwrapped(operand)
    if isinstance(operand, Unknown):
        return Unknown(f"{symbol}{run.shown(operand)}", place)
    return run.native(lambda: function(operand), place, lambda: symbol)


def negate(run: Run, operand: Value, place: Place) -> Value:
    """`not x`; of an unknown, the unknown opposite."""
    if isinstance(operand, Unknown):
        known = run.assumed(operand)
        if known is not None:
            return not known
        return Unknown(operand.name, place, negated=not operand.negated, relation=operand.relation)
    return not run.truth(operand, place)


def compare(run: Run, symbol: str, left: Value, right: Value, place: Place) -> Value:
    """One comparison; True, False, or an unknown truth that nothing assumed so far answers."""
    answer = _compare(run, symbol, left, right, place)
    if isinstance(answer, Unknown):
        known = run.assumed(answer)
        return answer if known is None else known
    return answer


def _compare(run: Run, symbol: str, left: Value, right: Value, place: Place) -> Value:
    if symbol in ("is", "is not"):
        return _identity(run, symbol == "is not", left, right, place)
    if symbol in ("in", "not in"):
        return _membership(run, symbol == "not in", left, right, place)
    if symbol in ("==", "!="):
        return _equality(run, symbol == "!=", left, right, place)
    function, dunder, reflected = _ORDER[symbol]
    if type(left) is Instance or type(right) is Instance:
        answer = _by_method(run, dunder, reflected, left, right, place)
        if answer is not ABSENT:
            return answer
        ordered = _as_ordered_data(left, right)
        left, right = ordered if ordered is not None else (unwrapped(left), unwrapped(right))
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return _unknown_order(run, symbol, left, right, place)
    weigh(run, left, place)
    return run.native(lambda: function(left, right), place, lambda: f"{run.shown(left)} {symbol} …")


def _unknown_order(run: Run, symbol: str, left: Value, right: Value, place: Place) -> Unknown:
    opposite = {"<": ">=", "<=": ">"}
    if symbol in opposite:
        name = f"{run.shown(left)} {opposite[symbol]} {run.shown(right)}"
        return Unknown(name, place, negated=True)
    return Unknown(f"{run.shown(left)} {symbol} {run.shown(right)}", place)


def _as_ordered_data(left: Value, right: Value) -> tuple[Value, Value] | None:
    """The compared fields of two objects of one dataclass with order=True."""
    if type(left) is Instance and type(right) is Instance and left.cls is right.cls:
        data = left.cls.data
        if data is not None and data.ordered:
            names = [entry.name for entry in data.fields if entry.compared]
            return (
                tuple(left.attributes.get(name) for name in names),
                tuple(right.attributes.get(name) for name in names),
            )
    return None


def _identity(run: Run, negated: bool, left: Value, right: Value, place: Place) -> Value:
    if left is right:
        return not negated
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return _unknown_equality(run, "is", negated, left, right, place)
    if isinstance(left, (Symbol, bool, type(None))) or type(left) is not type(right):
        same = type(left) is type(right) and left == right
    elif isinstance(left, (int, str, float, bytes)):
        # Python keeps one object for small numbers and for names; longer ones are compared by accident.
        same = left == right
    else:
        same = False
    return same != negated


def _equality(run: Run, negated: bool, left: Value, right: Value, place: Place) -> Value:
    if left is right and not isinstance(left, float):
        return not negated
    if type(left) in _SIMPLE and type(right) in _SIMPLE:
        return (left == right) != negated
    if negated and type(left) is Instance:
        method = left.cls.find("__ne__")
        if method is not ABSENT:
            return run.call(method, (left, right), {}, place)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return _unknown_equality(run, "==", negated, left, right, place)
    if has_lost_contents(left) or has_lost_contents(right):
        return Unknown(f"{run.shown(left)} == {run.shown(right)}", place, negated=negated)
    weigh(run, left, place)
    weigh(run, right, place)

    def name() -> str:
        return f"{run.shown(left)} == {run.shown(right)}"

    answer = run.native(lambda: left == right, place, name)
    if isinstance(answer, Unknown):
        return Unknown(name(), place, negated=negated)
    return bool(answer) != negated


def _unknown_equality(run: Run, symbol: str, negated: bool, left: Value, right: Value, place: Place) -> Value:
    if isinstance(left, Unknown) and isinstance(right, Unknown):
        if left.name == right.name and left.negated == right.negated:
            return not negated
        return Unknown(f"{left.name} {symbol} {right.name}", place, negated=negated)
    subject, constant = (left, right) if isinstance(left, Unknown) else (right, left)
    relation = Relation(subject.name, (constant,)) if _is_constant(constant) else None
    name = f"{run.shown(subject)} {symbol} {run.shown(constant)}"
    return Unknown(name, place, negated=negated, relation=None if subject.negated else relation)


def _is_constant(value: Value) -> bool:
    return (
        value is None
        or isinstance(value, (str, int, float, bool, Symbol))
        or (type(value) is Instance and value.cls.kind is ClassKind.ENUM)
    )


def _membership(run: Run, negated: bool, left: Value, right: Value, place: Place) -> Value:
    if type(left) is str and type(right) is str:
        return (left in right) != negated
    if type(right) is Instance:
        method = right.cls.find("__contains__")
        if method is not ABSENT:
            return run.truth(run.call(method, (right, left), {}, place), place) != negated
        right = unwrapped(right)
    if isinstance(right, Unknown):
        return Unknown(f"{run.shown(left)} in {run.shown(right)}", place, negated=negated)
    if isinstance(right, ClassValue) or (type(right) is Instance):
        right = list(run.items(right, place))
    kind = type(right)
    if isinstance(left, Unknown) or has_lost_contents(right):
        return _unknown_membership(run, negated, left, right, place)
    weigh(run, right, place)
    if kind in (str, bytes):
        left = unwrapped(left)
    if kind in (list, tuple):
        return _search(run, negated, left, right, place)

    def name() -> str:
        return f"{run.shown(left)} in {run.shown(right)}"

    answer = run.native(lambda: left in right, place, name)
    if isinstance(answer, Unknown):
        return Unknown(name(), place, negated=negated)
    return answer != negated


def _search(run: Run, negated: bool, left: Value, right: Value, place: Place) -> Value:
    """In a list or tuple, where unknown items come into it only when no known one is equal."""
    in_doubt = False
    is_simple = type(left) in _SIMPLE
    for item in right:
        if is_simple and type(item) in _SIMPLE:
            same: Value = item is left or item == left
        else:
            same = True if item is left else _equality(run, False, left, item, place)
        if isinstance(same, Unknown):
            in_doubt = True
        elif same:
            return not negated
    if in_doubt:
        return Unknown(f"{run.shown(left)} in {run.shown(right)}", place, negated=negated)
    return negated


def _unknown_membership(run: Run, negated: bool, left: Value, right: Value, place: Place) -> Value:
    if isinstance(right, (list, tuple, set, frozenset, dict)) and not right:
        return negated
    name = f"{run.shown(left)} in {run.shown(right)}"
    relation = None
    is_plain = isinstance(right, (list, tuple, set, frozenset, dict)) and not has_lost_contents(right)
    if is_plain and isinstance(left, Unknown) and not left.negated and all(map(_is_constant, right)):
        relation = Relation(left.name, tuple(right))
    return Unknown(name, place, negated=negated, relation=relation)


def _by_method(run: Run, dunder: str, reflected: str, left: Value, right: Value, place: Place) -> Value:
    for receiver, other, name in ((left, right, dunder), (right, left, reflected)):
        if type(receiver) is Instance:
            method = receiver.cls.find(name)
            if method is not ABSENT:
                answer = run.call(method, (receiver, other), {}, place)
                if answer is not NotImplemented:
                    return answer
    return ABSENT


def _require_bounded(run: Run, symbol: str, left: Value, right: Value, place: Place) -> None:
    """Refuse what would make a huge number or container."""
    sized = (str, bytes, list, tuple)
    if symbol == "+" and isinstance(left, sized) and isinstance(right, sized):
        run.require_size(len(left) + len(right), place)
    elif symbol == "*":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, sized) and isinstance(count, int):
                run.require_size(len(sequence) * max(count, 0), place)
        if isinstance(left, int) and isinstance(right, int):
            run.require_bits(left.bit_length() + right.bit_length(), place)
    elif symbol == "**" and isinstance(left, int) and isinstance(right, int) and right > 0:
        run.require_bits(left.bit_length() * right, place)
    elif symbol == "<<" and isinstance(left, int) and isinstance(right, int) and right > 0:
        run.require_bits(left.bit_length() + right, place)


_WIDTH = re.compile(r"%[^a-zA-Z%]*(\d{4,}|\*)")


def _percent(run: Run, template: Value, arguments: Value, place: Place) -> Value:
    name = f"{run.shown(template)} % {run.shown(arguments)}"
    if isinstance(template, str) and _WIDTH.search(template):
        raise run.refused("a wide field in a format", place)
    shown: Value = (
        tuple(native_text_argument(run, item, place) for item in arguments)
        if type(arguments) is tuple
        else native_text_argument(run, arguments, place)
    )
    if type(arguments) is dict and isinstance(template, str) and "%(" in template:
        shown = {key: native_text_argument(run, item, place) for key, item in arguments.items()}
    if contains_unknown(shown):
        return unknown_text(_percent_name(run, template, arguments), place)
    answer = run.native(lambda: template % shown, place, lambda: name)
    if isinstance(answer, (str, bytes)):
        run.require_size(len(answer), place)
    return answer


def _percent_name(run: Run, template: Value, arguments: Value) -> str:
    """The text with unknown parts in braces where it can be had, otherwise the expression."""
    listed = arguments if type(arguments) is tuple else (arguments,)
    try:
        return str(template % tuple(run.in_braces(item) for item in listed))
    except (TypeError, ValueError, Touched):
        return f"{run.shown(template)} % {run.shown(arguments)}"
