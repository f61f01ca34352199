"""Targets of assignments, and changes of containers by known and unknown keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from draftproof.stacks.evaluation.code import ScopeKind
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.subscripts import delete_item, set_item
from draftproof.stacks.evaluation.unknowns import (
    Touched,
    Unknown,
    Value,
    contains_unknown,
    has_lost_contents,
    lose_contents,
)
from draftproof.stacks.evaluation.values import Instance, unwrapped
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

Store: TypeAlias = Callable[[Frame, Value], None]


def compile_target(node: ast.expr, scope: ScopeKind) -> Store:
    """A closure that assigns a value to a target."""
    if isinstance(node, ast.Name):
        return _name_target(node.id, scope)
    place = scope.place(node)
    if isinstance(node, ast.Attribute):
        owner, name = scope.expression(node.value), node.attr
        return lambda frame, value: frame.run.set_attribute(owner(frame), name, value, place)
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Attribute):
            return _attribute_item_target(node.value, node.slice, scope)
        container, index = scope.expression(node.value), scope.expression(node.slice)
        return lambda frame, value: set_item(frame.run, container(frame), index(frame), value, place)
    if isinstance(node, (ast.Tuple, ast.List)):
        return _unpacking_target(node, scope)
    raise AssertionError(f"no target of an assignment: {type(node).__name__}")


def _attribute_item_target(node: ast.Attribute, index: ast.expr, scope: ScopeKind) -> Store:
    """`owner.name[index] = value` changes what the attribute holds, and so counts as assigning it."""
    owner, name, key, place = (
        scope.expression(node.value),
        node.attr,
        scope.expression(index),
        scope.place(node),
    )

    def store(frame: Frame, value: Value) -> None:
        run, holder = frame.run, owner(frame)
        container = run.attribute(holder, name, place)
        set_item(run, container, key(frame), value, place)
        if isinstance(holder, Instance):
            run.note_assignment(holder, name, container, place)

    return store


def _name_target(name: str, scope: ScopeKind) -> Store:
    if name in scope.declared_global:
        return lambda frame, value: frame.module.assign(name, value)
    if scope.local is None or name in scope.local:

        def local(frame: Frame, value: Value) -> None:
            frame.names[name] = value

        return local
    for levels, names in enumerate(scope.enclosing, start=1):
        if name in names:

            def enclosing(frame: Frame, value: Value, levels: int = levels) -> None:
                around: Frame | None = frame
                for _ in range(levels):
                    around = around.parent if around is not None else None
                if around is not None:
                    around.names[name] = value

            return enclosing
    return lambda frame, value: frame.module.assign(name, value)


def _unpacking_target(node: ast.Tuple | ast.List, scope: ScopeKind) -> Store:
    place = scope.place(node)
    starred = next((i for i, part in enumerate(node.elts) if isinstance(part, ast.Starred)), None)
    stores = [
        compile_target(part.value if isinstance(part, ast.Starred) else part, scope) for part in node.elts
    ]

    def unpack(frame: Frame, value: Value) -> None:
        if type(value) is tuple and starred is None and len(value) == len(stores):
            for store, part in zip(stores, value, strict=True):
                store(frame, part)
            return
        run = frame.run
        if isinstance(value, Unknown) or has_lost_contents(value):
            parts: list[Value] = [Unknown(f"{run.shown(value)}[{i}]", place) for i in range(len(stores))]
        else:
            parts = _split(run, list(run.items(value, place)), len(stores), starred, place)
        for store, part in zip(stores, parts, strict=True):
            store(frame, part)

    return unpack


def _split(run: Run, items: list[Value], wanted: int, starred: int | None, place: Place) -> list[Value]:
    if starred is None:
        if len(items) < wanted:
            message = f"not enough values to unpack (expected {wanted}, got {len(items)})"
            raise run.error("ValueError", message, place)
        if len(items) > wanted:
            raise run.error("ValueError", f"too many values to unpack (expected {wanted})", place)
        return items
    after = wanted - starred - 1
    if len(items) < wanted - 1:
        message = f"not enough values to unpack (expected at least {wanted - 1}, got {len(items)})"
        raise run.error("ValueError", message, place)
    middle = items[starred : len(items) - after]
    return [*items[:starred], middle, *items[len(items) - after :]]


def compile_deletion(node: ast.expr, scope: ScopeKind) -> Callable[[Frame], None]:
    """A closure that deletes a target."""
    place = scope.place(node)
    if isinstance(node, ast.Name):
        name = node.id
        return lambda frame: _delete_name(frame, name, place)
    if isinstance(node, ast.Attribute):
        owner, attribute = scope.expression(node.value), node.attr
        return lambda frame: _delete_attribute(frame.run, owner(frame), attribute, place)
    if isinstance(node, ast.Subscript):
        container, index = scope.expression(node.value), scope.expression(node.slice)
        return lambda frame: delete_item(frame.run, container(frame), index(frame), place)
    if isinstance(node, (ast.Tuple, ast.List)):
        deletions = [compile_deletion(part, scope) for part in node.elts]
        return lambda frame: [delete(frame) for delete in deletions].clear()
    raise AssertionError(f"cannot be deleted: {type(node).__name__}")


def _delete_name(frame: Frame, name: str, place: Place) -> None:
    if name not in frame.names:
        message = f"cannot access local variable '{name}' where it is not associated with a value"
        raise frame.run.error("UnboundLocalError", message, place)
    del frame.names[name]


def _delete_attribute(run: Run, owner: Value, name: str, place: Place) -> None:
    if isinstance(owner, Unknown):
        return
    if isinstance(owner, Instance) and name in owner.attributes:
        del owner.attributes[name]
        owner.places[name] = place
        return
    raise run.error("AttributeError", f"'{run.shown(owner)}' object has no attribute '{name}'", place)


def make_set(run: Run, values: Iterable[Value], place: Place) -> Value:
    """A set; its contents are lost when one of the values is not known."""
    listed = list(values)
    if any(contains_unknown(value) for value in listed):
        made: set[Value] = set()
        lose_contents(made)
        return made
    return run.native(lambda: set(listed), place, lambda: "set(…)")


def set_in_dict(run: Run, target: dict[Value, Value], key: Value, value: Value, place: Place) -> None:
    """`target[key] = value`; an unknown key loses the contents."""
    if has_lost_contents(target):
        return
    if contains_unknown(key):
        lose_contents(target)
        return
    try:
        target[key] = value
    except Touched:
        lose_contents(target)
    except TypeError as error:
        raise run.native_error(error, place) from error


def mapping_content(run: Run, value: Value, place: Place) -> Mapping[Value, Value] | None:
    """The items of what stands after `**`; None when they are not known."""
    value = unwrapped(value)
    if isinstance(value, Unknown) or has_lost_contents(value):
        return None
    if isinstance(value, dict):
        return value
    if isinstance(value, Instance):
        keys = list(run.items(run.call(run.attribute(value, "keys", place), (), {}, place), place))
        getter = run.attribute(value, "__getitem__", place)
        return {key: run.call(getter, (key,), {}, place) for key in keys}
    kind = type(value).__name__
    raise run.error("TypeError", f"'{kind}' object is not a mapping", place)
