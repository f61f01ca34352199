"""Functions of evaluated code: definition, binding of arguments, and the run of the body."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.code import Expression, FunctionCode, ScopeKind, Signal
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import Arguments, FunctionValue

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


def make_function(code: FunctionCode, scope: ScopeKind) -> Expression:
    """A closure that gives a function with its defaults, as they are where it is defined."""
    arguments = code.arguments
    defaults = [scope.expression(default) for default in arguments.defaults]
    keyword_defaults = [
        (parameter.arg, scope.expression(default))
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    ]

    def make(frame: Frame) -> Value:
        # Functions do not see the names of a class body around them.
        closure = frame if not scope.is_class_body or frame.parent is None else frame.parent
        function = FunctionValue(
            code,
            closure,
            tuple(default(frame) for default in defaults),
            {name: default(frame) for name, default in keyword_defaults},
        )
        around = frame.function
        if around is not None and not scope.is_class_body:
            function.qualified_name = f"{around.qualified_name}.<locals>.{code.name}"
            function.owner = around.owner
        return function

    return make


def invoke(run: Run, function: FunctionValue, arguments: Arguments) -> Value:
    """Call a function."""
    code, place = function.code, arguments.place
    run.tick(place)
    if run.depth >= run.settings.depth:
        raise run.refused(f"more than {run.settings.depth} calls inside calls", place)
    if code.is_asynchronous:
        return Unknown(f"{function.name}(…)", place, reason=f"not understood: a coroutine at {place}")
    frame = Frame(run, function.module, bind(run, function, arguments), function.closure, function)
    if code.body is None:
        code.body = _compile_body(code)
    run.depth += 1
    try:
        code.body(frame)
    finally:
        run.depth -= 1
    if code.generates:
        return iter(frame.yielded or [])
    return frame.returned


def _compile_body(code: FunctionCode) -> Callable[[Frame], Signal]:
    if isinstance(code.node, ast.Lambda):
        value = code.scope.expression(code.node.body)

        def give(frame: Frame) -> Signal:
            frame.returned = value(frame)
            return Signal.RETURN

        return give
    return code.scope.block(code.node.body)


def bind(run: Run, function: FunctionValue, given: Arguments) -> dict[str, Value]:
    """The parameters' values.

    Raises:
        Raised: TypeError, with Python's own words.
    """
    spec = function.code.arguments
    names = [entry.arg for entry in (*spec.posonlyargs, *spec.args)]
    bound: dict[str, Value] = dict(zip(names, given.positional, strict=False))
    if spec.vararg is not None:
        rest = given.positional[len(names) :]
        bound[spec.vararg.arg] = rest if given.is_complete else Unknown(spec.vararg.arg, given.place)
    elif len(given.positional) > len(names):
        raise _too_many(run, function, given, names)
    _bind_keywords(run, function, given, bound)
    first_default = len(names) - len(function.defaults)
    for position, name in enumerate(names):
        if name not in bound and position >= first_default:
            bound[name] = _default(function.defaults[position - first_default], name, given)
    for parameter in spec.kwonlyargs:
        if parameter.arg not in bound and parameter.arg in function.keyword_defaults:
            bound[parameter.arg] = _default(function.keyword_defaults[parameter.arg], parameter.arg, given)
    _require_all(run, function, given, bound, names)
    return bound


def _default(value: Value, name: str, given: Arguments) -> Value:
    return value if given.is_complete else Unknown(name, given.place)


def _bind_keywords(run: Run, function: FunctionValue, given: Arguments, bound: dict[str, Value]) -> None:
    spec = function.code.arguments
    accepted = {entry.arg for entry in (*spec.args, *spec.kwonlyargs)}
    extra: dict[str, Value] = {}
    for name, value in given.keywords.items():
        if name in accepted:
            if name in bound:
                message = f"{function.qualified_name}() got multiple values for argument '{name}'"
                raise run.error("TypeError", message, given.place)
            bound[name] = value
        elif spec.kwarg is not None:
            extra[name] = value
        else:
            message = f"{function.qualified_name}() got an unexpected keyword argument '{name}'"
            raise run.error("TypeError", message, given.place)
    if spec.kwarg is not None:
        bound[spec.kwarg.arg] = extra if given.is_complete else Unknown(spec.kwarg.arg, given.place)


def _require_all(
    run: Run, function: FunctionValue, given: Arguments, bound: dict[str, Value], names: list[str]
) -> None:
    keyword_only = [entry.arg for entry in function.code.arguments.kwonlyargs]
    for kind, wanted in (("positional", names), ("keyword-only", keyword_only)):
        missing = [name for name in wanted if name not in bound]
        if not missing:
            continue
        if not given.is_complete:
            bound.update({name: Unknown(name, given.place) for name in missing})
            continue
        count = len(missing)
        noun = "argument" if count == 1 else "arguments"
        message = f"{function.qualified_name}() missing {count} required {kind} {noun}: {_listed(missing)}"
        raise run.error("TypeError", message, given.place)


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    if len(quoted) == 1:
        return quoted[0]
    if len(quoted) == 2:
        return f"{quoted[0]} and {quoted[1]}"
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def _too_many(run: Run, function: FunctionValue, given: Arguments, names: list[str]) -> Exception:
    least = len(names) - len(function.defaults)
    takes = f"from {least} to {len(names)}" if function.defaults else str(len(names))
    plural = "s" if function.defaults or len(names) != 1 else ""
    count = len(given.positional)
    verb = "was" if count == 1 else "were"
    message = (
        f"{function.qualified_name}() takes {takes} positional argument{plural} but {count} {verb} given"
    )
    return run.error("TypeError", message, given.place)
