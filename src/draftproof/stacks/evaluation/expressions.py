"""Expressions compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from draftproof.stacks.evaluation import assignment, comprehensions, displays, operators, render
from draftproof.stacks.evaluation.code import Expression, ScopeKind, function_code
from draftproof.stacks.evaluation.functions import make_function
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.subscripts import get_item
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import ABSENT, Arguments
from draftproof.stacks.place import Place

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.MatMult: "@",
}  # fmt: skip
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_COMPARE = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def binary_symbol(operator: ast.operator) -> str:
    """How an operator is written."""
    return _BINARY[type(operator)]


def compile_expression(node: ast.expr, scope: ScopeKind) -> Expression:
    """A closure that gives the expression's value in a frame."""
    compiler = _COMPILERS.get(type(node))
    if compiler is None:
        place = scope.place(node)
        what = type(node).__name__
        return lambda frame: Unknown(what, place, reason=f"not understood: {what} at {place}")
    return compiler(node, scope)


def compile_optional(node: ast.expr | None, scope: ScopeKind) -> Expression:
    """As `compile_expression`; None for a missing one."""
    return (lambda frame: None) if node is None else compile_expression(node, scope)


def _constant(node: ast.Constant, scope: ScopeKind) -> Expression:
    value = node.value
    return lambda frame: value


def _name(node: ast.Name, scope: ScopeKind) -> Expression:
    name, place = node.id, scope.place(node)
    if scope.local is None:
        return _unscoped_name(name, scope)
    if name in scope.local:

        def local(frame: Frame) -> Value:
            value = frame.names.get(name, ABSENT)
            if value is ABSENT:
                message = f"cannot access local variable '{name}' where it is not associated with a value"
                raise frame.run.error("UnboundLocalError", message, place)
            return value

        return local
    if name not in scope.declared_global:
        for levels, names in enumerate(scope.enclosing, start=1):
            if name in names:
                return _enclosing_name(name, levels, scope)
    return lambda frame: global_value(frame, name, place)


def _enclosing_name(name: str, levels: int, scope: ScopeKind) -> Expression:
    place = scope.file

    def enclosing(frame: Frame) -> Value:
        around: Frame | None = frame
        for _ in range(levels):
            around = around.parent if around is not None else None
        value = ABSENT if around is None else around.names.get(name, ABSENT)
        if value is ABSENT:
            message = (
                f"cannot access free variable '{name}' where it is not associated with a value "
                "in enclosing scope"
            )
            raise frame.run.error("NameError", message, Place(place, 0))
        return value

    return enclosing


def _unscoped_name(name: str, scope: ScopeKind) -> Expression:
    """In a module or class body."""
    place = scope.place(ast.Pass(lineno=0))

    def anywhere(frame: Frame) -> Value:
        if scope.is_class_body:
            value = frame.names.get(name, ABSENT)
            if value is not ABSENT:
                return value
            around = frame.parent
            while around is not None and around.parent is not None:
                if name in around.names:
                    return around.names[name]
                around = around.parent
        return global_value(frame, name, place)

    return anywhere


def global_value(frame: Frame, name: str, place: Place) -> Value:
    """A name of the module, or one of Python's builtins."""
    value = frame.module.own(name, frame.limit)
    if value is ABSENT:
        value = frame.run.builtins.get(name, ABSENT)
        if value is ABSENT:
            raise frame.run.error("NameError", f"name '{name}' is not defined", place)
    return value


def _attribute(node: ast.Attribute, scope: ScopeKind) -> Expression:
    value, name, place = compile_expression(node.value, scope), node.attr, scope.place(node)
    return lambda frame: frame.run.attribute(value(frame), name, place)


def _subscript(node: ast.Subscript, scope: ScopeKind) -> Expression:
    value, index = compile_expression(node.value, scope), compile_expression(node.slice, scope)
    place = scope.place(node)
    return lambda frame: get_item(frame.run, value(frame), index(frame), place)


def _slice(node: ast.Slice, scope: ScopeKind) -> Expression:
    parts = [compile_optional(part, scope) for part in (node.lower, node.upper, node.step)]
    place = scope.place(node)

    def make(frame: Frame) -> Value:
        values = [part(frame) for part in parts]
        for value in values:
            if isinstance(value, Unknown):
                return Unknown(":".join("" if v is None else render.shown(v) for v in values), place)
        return slice(*values)

    return make


def _binary(node: ast.BinOp, scope: ScopeKind) -> Expression:
    left, right = compile_expression(node.left, scope), compile_expression(node.right, scope)
    symbol, place = _BINARY[type(node.op)], scope.place(node)
    return lambda frame: operators.binary(frame.run, symbol, left(frame), right(frame), place)


def _unary(node: ast.UnaryOp, scope: ScopeKind) -> Expression:
    operand, place = compile_expression(node.operand, scope), scope.place(node)
    if isinstance(node.op, ast.Not):
        return lambda frame: operators.negate(frame.run, operand(frame), place)
    symbol = _UNARY[type(node.op)]
    return lambda frame: operators.unary(frame.run, symbol, operand(frame), place)


def _boolean(node: ast.BoolOp, scope: ScopeKind) -> Expression:
    parts = [compile_expression(part, scope) for part in node.values]
    places = [scope.place(part) for part in node.values]
    ends_on = isinstance(node.op, ast.Or)
    *leading, last = parts

    def evaluate(frame: Frame) -> Value:
        run = frame.run
        for part, place in zip(leading, places, strict=False):
            value = part(frame)
            if run.truth(value, place) is ends_on:
                # An unknown that decided keeps its name: asked again, it has the answer just assumed.
                return value
        return last(frame)

    return evaluate


def _compare(node: ast.Compare, scope: ScopeKind) -> Expression:
    first = compile_expression(node.left, scope)
    rest = [
        (_COMPARE[type(op)], compile_expression(part, scope))
        for op, part in zip(node.ops, node.comparators, strict=True)
    ]
    place = scope.place(node)
    if len(rest) == 1:
        symbol, second = rest[0]
        return lambda frame: operators.compare(frame.run, symbol, first(frame), second(frame), place)

    def chain(frame: Frame) -> Value:
        left = first(frame)
        answer: Value = True
        for position, (symbol, part) in enumerate(rest):
            right = part(frame)
            answer = operators.compare(frame.run, symbol, left, right, place)
            if position < len(rest) - 1 and not frame.run.truth(answer, place):
                return answer
            left = right
        return answer

    return chain


def _conditional(node: ast.IfExp, scope: ScopeKind) -> Expression:
    test, place = compile_expression(node.test, scope), scope.place(node)
    body, otherwise = compile_expression(node.body, scope), compile_expression(node.orelse, scope)
    return lambda frame: body(frame) if frame.run.truth(test(frame), place) else otherwise(frame)


def _call(node: ast.Call, scope: ScopeKind) -> Expression:
    place = scope.place(node)
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return lambda frame: frame.run.call_with(frame.run.builtins["super"], Arguments((frame,), {}, place))
    function = compile_expression(node.func, scope)
    stars = any(isinstance(part, ast.Starred) for part in node.args)
    if not stars and all(keyword.arg is not None for keyword in node.keywords):
        positional = [compile_expression(part, scope) for part in node.args]
        keywords = [(str(entry.arg), compile_expression(entry.value, scope)) for entry in node.keywords]

        def plain(frame: Frame) -> Value:
            called = function(frame)
            arguments = Arguments(
                tuple([part(frame) for part in positional]),
                {name: part(frame) for name, part in keywords},
                place,
            )
            return frame.run.call_with(called, arguments)

        return plain
    gather = _compile_arguments(node, scope)
    return lambda frame: frame.run.call_with(function(frame), gather(frame))


def _compile_arguments(node: ast.Call, scope: ScopeKind) -> Callable[[Frame], Arguments]:
    """Arguments with stars."""
    place = scope.place(node)
    positional = [
        (
            isinstance(part, ast.Starred),
            compile_expression(part.value if isinstance(part, ast.Starred) else part, scope),
        )
        for part in node.args
    ]
    keywords = [(entry.arg, compile_expression(entry.value, scope)) for entry in node.keywords]

    def gather(frame: Frame) -> Arguments:
        run, complete = frame.run, True
        values: list[Value] = []
        named: dict[str, Value] = {}
        for is_starred, part in positional:
            value = part(frame)
            if not is_starred:
                values.append(value)
            elif isinstance(value, Unknown):
                complete = False
            else:
                values.extend(run.items(value, place))
        for name, part in keywords:
            value = part(frame)
            if name is not None:
                named[name] = value
                continue
            content = assignment.mapping_content(run, value, place)
            complete = complete and content is not None
            named.update(content or {})
        return Arguments(tuple(values), named, place, complete)

    return gather


def _lambda(node: ast.Lambda, scope: ScopeKind) -> Expression:
    code = function_code(node, scope)
    return make_function(code, scope)


def _named(node: ast.NamedExpr, scope: ScopeKind) -> Expression:
    value = compile_expression(node.value, scope)
    store = assignment.compile_target(node.target, scope)

    def evaluate(frame: Frame) -> Value:
        result = value(frame)
        store(frame, result)
        return result

    return evaluate


def _yield(node: ast.Yield, scope: ScopeKind) -> Expression:
    value, place = compile_optional(node.value, scope), scope.place(node)

    def evaluate(frame: Frame) -> Value:
        comprehensions.add_yielded(frame, value(frame), place)
        return None

    return evaluate


def _yield_from(node: ast.YieldFrom, scope: ScopeKind) -> Expression:
    value, place = compile_expression(node.value, scope), scope.place(node)

    def evaluate(frame: Frame) -> Value:
        for item in frame.run.items(value(frame), place):
            comprehensions.add_yielded(frame, item, place)
        return None

    return evaluate


def _await(node: ast.Await, scope: ScopeKind) -> Expression:
    place = scope.place(node)
    return lambda frame: Unknown("await …", place, reason=f"not understood: await at {place}")


_COMPILERS: dict[type[ast.expr], Callable[[Any, ScopeKind], Expression]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Call: _call,
    ast.List: displays.compile_list,
    ast.Tuple: displays.compile_tuple,
    ast.Set: displays.compile_set,
    ast.Dict: displays.compile_dict,
    ast.JoinedStr: displays.compile_formatted,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.Await: _await,
    ast.ListComp: comprehensions.compile_list,
    ast.SetComp: comprehensions.compile_set,
    ast.DictComp: comprehensions.compile_dict,
    ast.GeneratorExp: comprehensions.compile_generator,
}
