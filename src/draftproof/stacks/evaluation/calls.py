"""Calls of anything that can be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation import construction
from draftproof.stacks.evaluation.functions import invoke
from draftproof.stacks.evaluation.native_types import construct_native
from draftproof.stacks.evaluation.outcomes import TracedCall
from draftproof.stacks.evaluation.type_checks import class_name
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    BoundMethod,
    ClassMethod,
    ClassValue,
    FunctionValue,
    Instance,
    NativeFunction,
    StaticMethod,
    Symbol,
)

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def call(run: Run, function: Value, arguments: Arguments) -> Value:
    """Call a value."""
    if run.settings.traced:
        _trace(run, function, arguments)
    kind = type(function)
    if kind is FunctionValue:
        return invoke(run, function, arguments)
    if kind is BoundMethod:
        return _call_bound(run, function, arguments)
    if kind is NativeFunction:
        return function.implementation(run, arguments)
    if kind is ClassValue:
        return construction.instantiate(run, function, arguments)
    if kind is Unknown:
        return _call_unknown(run, function, arguments)
    if kind is Instance:
        return _call_instance(run, function, arguments)
    if isinstance(function, type):
        return construct_native(run, function, arguments)
    if kind in (StaticMethod, ClassMethod):
        return call(run, function.function, arguments)
    if kind is Symbol:
        return _call_unknown(run, Unknown(function.name, arguments.place), arguments)
    if isinstance(function, Unknown):
        return Unknown(f"{run.shown(function)}(…)", arguments.place)
    raise run.error("TypeError", f"'{class_name(function)}' object is not callable", arguments.place)


def _call_bound(run: Run, method: BoundMethod, arguments: Arguments) -> Value:
    given = Arguments(
        (method.receiver, *arguments.positional), arguments.keywords, arguments.place, arguments.is_complete
    )
    function = method.function
    if type(function) is FunctionValue:
        return invoke(run, function, given)
    if type(function) is NativeFunction:
        return function.implementation(run, given)
    return call(run, function, given)


def _call_instance(run: Run, value: Instance, arguments: Arguments) -> Value:
    method = value.cls.find("__call__")
    if method is not ABSENT:
        return call(run, BoundMethod(method, value), arguments)
    if value.cls.unknown_base is not None or value.missing.value != "raises AttributeError":
        return _call_unknown(run, Unknown(value.label, arguments.place), arguments)
    raise run.error("TypeError", f"'{value.cls.name}' object is not callable", arguments.place)


def _call_unknown(run: Run, function: Unknown, arguments: Arguments) -> Unknown:
    """Nothing is known about what it does; its name says what was asked."""
    name = run.shown(function)
    parts = [run.shown(item) for item in arguments.positional]
    parts += [f"{key}={run.shown(item)}" for key, item in arguments.keywords.items()]
    if not arguments.is_complete:
        parts.append("…")
    run.events.append(
        TracedCall(name, arguments.positional, arguments.keywords, arguments.place, is_unknown=True)
    )
    return Unknown(f"{name}({', '.join(parts)})", arguments.place, reason=function.reason)


def _trace(run: Run, function: Value, arguments: Arguments) -> None:
    name = called_name(function)
    last = name.rpartition(".")[2]
    if (name in run.settings.traced or last in run.settings.traced) and not isinstance(function, Unknown):
        run.events.append(TracedCall(name, arguments.positional, arguments.keywords, arguments.place))


def called_name(function: Value) -> str:
    """The name of what is called."""
    if isinstance(function, BoundMethod):
        inner = function.function
        if isinstance(function.receiver, Instance):
            return f"{function.receiver.label}.{getattr(inner, 'name', '')}"
        return called_name(inner)
    if isinstance(function, FunctionValue):
        return f"{function.module.dotted}.{function.qualified_name}"
    if isinstance(function, (NativeFunction, ClassValue, Unknown, Symbol)):
        return function.name
    if isinstance(function, Instance):
        return function.label
    return getattr(function, "__name__", "")
