"""The `class` statement."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.assignment import compile_target
from draftproof.stacks.evaluation.code import ScopeKind, Signal, Statement
from draftproof.stacks.evaluation.enums import make_members
from draftproof.stacks.evaluation.named_tuples import make_named_tuple
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import (
    ABSENT,
    Arguments,
    ClassKind,
    ClassMethod,
    ClassValue,
    FunctionValue,
    Instance,
    NativeFunction,
    PropertyValue,
    StaticMethod,
)
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

NATIVE_BASES = (str, int, float, dict, list, tuple, set, frozenset, bytes)


def compile_class(node: ast.ClassDef, scope: ScopeKind) -> Statement:
    """A class with its decorators."""
    place = scope.place(node)
    bases = [scope.expression(base) for base in node.bases if not isinstance(base, ast.Starred)]
    keywords = [(entry.arg or "**", scope.expression(entry.value)) for entry in node.keywords]
    decorators = [(scope.expression(part), scope.place(part)) for part in node.decorator_list]
    body = scope.inside_class().block(node.body)
    store = compile_target(ast.copy_location(ast.Name(node.name, ast.Store()), node), scope)
    annotations = _annotations(node)

    def run(frame: Frame) -> Signal:
        applied = [(decorator(frame), where) for decorator, where in decorators]
        made_bases = [base(frame) for base in bases]
        named = {name: value(frame) for name, value in keywords}
        parent = frame if not scope.is_class_body or frame.parent is None else frame.parent
        inner = Frame(frame.run, frame.module, {}, parent, frame.function)
        inner.limit = frame.limit
        body(inner)
        value: Value = build_class(frame, node.name, made_bases, inner.names, annotations, named, place)
        for decorator, where in reversed(applied):
            if isinstance(decorator, Unknown):
                continue
            decorated = frame.run.call(decorator, (value,), {}, where)
            value = value if isinstance(decorated, Unknown) else decorated
        store(frame, value)
        return Signal.NEXT

    return run


def _annotations(node: ast.ClassDef) -> dict[str, str]:
    """Annotated names of the body, in order, with the annotation's text."""
    return {
        part.target.id: ast.unparse(part.annotation)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def build_class(
    frame: Frame,
    name: str,
    bases: Sequence[Value],
    namespace: dict[str, Value],
    annotations: Mapping[str, str],
    keywords: Mapping[str, Value],
    place: Place,
) -> ClassValue:
    """A class from its parts.

    Args:
        frame: where it is defined.
        name: its name.
        bases: evaluated.
        namespace: what its body bound.
        annotations: text of each annotated name of the body.
        keywords: metaclass and the like.
        place: of the statement.
    """
    run = frame.run
    cls = ClassValue(name, tuple(bases), namespace)
    cls.run, cls.place, cls.module = run, place, frame.module.dotted
    if frame.function is not None:
        cls.qualified_name = f"{frame.function.qualified_name}.<locals>.{name}"
    namespace["__annotations__"] = dict(annotations)
    for member in run.program.substituted_members(f"{cls.module}.{cls.qualified_name}"):
        namespace[member] = run.program.substitute(run, f"{cls.module}.{cls.qualified_name}.{member}")
    _inherit(run, cls, bases, place)
    _adopt(cls, namespace)
    metaclass = keywords.get("metaclass")
    if isinstance(metaclass, ClassValue):
        _follow_metaclass(cls, metaclass, place)
    if cls.kind in (ClassKind.ENUM, ClassKind.FLAG):
        make_members(run, cls, place)
    elif cls.kind is ClassKind.NAMED_TUPLE and annotations and cls.find("__named_fields__") is ABSENT:
        make_named_tuple(cls, [(field, namespace.get(field, ABSENT)) for field in annotations])
    hook = next(
        (
            entry.namespace["__init_subclass__"]
            for entry in cls.mro[1:]
            if "__init_subclass__" in entry.namespace
        ),
        None,
    )
    _name_members(run, cls, place)
    if hook is not None:
        function = hook.function if isinstance(hook, ClassMethod) else hook
        rest = {key: value for key, value in keywords.items() if key != "metaclass"}
        run.call_with(function, Arguments((cls,), rest, place))
    return cls


def _name_members(run: Run, cls: ClassValue, place: Place) -> None:
    """Objects in a class body are told their names, as descriptors expect."""
    for name, member in list(cls.namespace.items()):
        if isinstance(member, Instance):
            told = member.cls.find("__set_name__")
            if told is not ABSENT:
                run.call(told, (member, cls, name), {}, place)


def _inherit(run: Run, cls: ClassValue, bases: Sequence[Value], place: Place) -> None:
    known: list[ClassValue] = []
    for base in bases:
        if isinstance(base, ClassValue):
            known.append(base)
            cls.kind = base.kind if cls.kind is ClassKind.PLAIN else cls.kind
            cls.unknown_base = cls.unknown_base or base.unknown_base
            cls.native_base = cls.native_base or base.native_base
            cls.data = cls.data or base.data
        elif isinstance(base, type) and issubclass(base, NATIVE_BASES):
            cls.native_base = cls.native_base or next(kind for kind in NATIVE_BASES if issubclass(base, kind))
        elif base is not object:
            cls.unknown_base = base if isinstance(base, Unknown) else Unknown(run.shown(base), place)
    order = merge_orders([*(list(base.mro) for base in known), known])
    if order is None:
        raise run.error(
            "TypeError",
            "Cannot create a consistent method resolution order (MRO) for bases "
            + ", ".join(base.name for base in known),
            place,
        )
    cls.mro = (cls, *order)


def merge_orders(orders: list[list[ClassValue]]) -> list[ClassValue] | None:
    """Python's merge of base orders (C3); None when there is no consistent one."""
    merged: list[ClassValue] = []
    rest = [list(order) for order in orders if order]
    while rest:
        for order in rest:
            candidate = order[0]
            if not any(candidate in other[1:] for other in rest):
                break
        else:
            return None
        merged.append(candidate)
        rest = [[entry for entry in order if entry is not candidate] for order in rest]
        rest = [order for order in rest if order]
    return merged


def _adopt(cls: ClassValue, namespace: dict[str, Value]) -> None:
    """Functions of the body know the class that they belong to."""
    for value in namespace.values():
        for function in _functions_of(value):
            if isinstance(function, FunctionValue) and function.owner is None:
                function.owner = cls
                function.qualified_name = f"{cls.qualified_name}.{function.name}"
    for name in ("__init_subclass__", "__class_getitem__"):
        if isinstance(namespace.get(name), FunctionValue):
            namespace[name] = ClassMethod(namespace[name])
    if isinstance(namespace.get("__new__"), FunctionValue):
        namespace["__new__"] = StaticMethod(namespace["__new__"])


def _functions_of(value: Value) -> tuple[Value, ...]:
    if isinstance(value, PropertyValue):
        return (value.getter, value.setter)
    if isinstance(value, (StaticMethod, ClassMethod)):
        return (value.function,)
    if isinstance(value, NativeFunction):
        return (value.attributes.get("__wrapped__"),)
    return (value,)


def _follow_metaclass(cls: ClassValue, metaclass: ClassValue, place: Place) -> None:
    """A metaclass of the tree may answer for attributes and calls in ways that are not followed."""
    followed = {"__new__", "__init__", "__call__", "__getattr__", "__getattribute__"}
    if any(name in entry.namespace for entry in metaclass.mro for name in followed):
        cls.unknown_base = cls.unknown_base or Unknown(f"type({cls.name})", place)
