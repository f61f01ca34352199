"""A function's syntax tree in the form in which it is run: closures, made once and shared by all ways."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Protocol, TypeAlias

from draftproof.stacks.evaluation.scope import (
    Frame,
    bound_names,
    global_names,
    is_generator,
    parameter_names,
)
from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.place import Place


class Signal(IntEnum):
    """How a statement ended."""

    NEXT = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 3


Expression: TypeAlias = Callable[[Frame], Value]
Statement: TypeAlias = Callable[[Frame], Signal]


class Compiler(Protocol):
    """Makes closures of syntax trees."""

    def expression(self, node: ast.expr, scope: ScopeKind) -> Expression:
        """A closure that gives the expression's value."""

    def block(self, nodes: Sequence[ast.stmt], scope: ScopeKind) -> Statement:
        """A closure that runs statements until one of them ends the block."""


@dataclass(frozen=True)
class ScopeKind:
    """Where a block's names are looked for.

    Attributes:
        compiler: makes closures of the block's parts.
        file: of the source.
        local: names of the block's own function; None in a module or class body, where any name may be.
        enclosing: names of each function around it, the nearest first.
        is_class_body: a class body: names not found in it are looked for around it.
        declared_global: names that the block declares global.
    """

    compiler: Compiler
    file: str
    local: frozenset[str] | None
    enclosing: tuple[frozenset[str], ...] = ()
    is_class_body: bool = False
    declared_global: frozenset[str] = frozenset()

    def expression(self, node: ast.expr) -> Expression:
        """A closure that gives an expression's value."""
        return self.compiler.expression(node, self)

    def block(self, nodes: Sequence[ast.stmt]) -> Statement:
        """A closure that runs statements."""
        return self.compiler.block(nodes, self)

    def place(self, node: ast.AST) -> Place:
        """The line of a node."""
        return Place(self.file, getattr(node, "lineno", 0))

    def inside_class(self) -> ScopeKind:
        """The scope of a class body in this one."""
        around = self.enclosing if self.local is None else (self.local, *self.enclosing)
        return ScopeKind(self.compiler, self.file, None, around, is_class_body=True)

    def inside_function(self, local: frozenset[str], declared_global: frozenset[str]) -> ScopeKind:
        """The scope of a function defined in this one. Functions do not see the names of a class body."""
        around = self.enclosing if self.local is None else (self.local, *self.enclosing)
        return ScopeKind(self.compiler, self.file, local, around, declared_global=declared_global)


@dataclass(eq=False)
class FunctionCode:
    """A function definition.

    Most functions of a module are defined and never called, so that the body is looked at when it is needed.

    Attributes:
        name: of the function; "<lambda>" for a lambda.
        node: its syntax tree.
        around: the scope that it is defined in.
        place: of the definition.
        body: the compiled body; made when the function is first called.
    """

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    around: ScopeKind
    place: Place
    body: Statement | None = field(default=None)

    @cached_property
    def scope(self) -> ScopeKind:
        """Of its body."""
        local = bound_names(self._statements) | frozenset(parameter_names(self.node.args))
        return self.around.inside_function(local, global_names(self._statements))

    @cached_property
    def generates(self) -> bool:
        """Whether the body yields."""
        return is_generator(self._statements)

    @property
    def _statements(self) -> list[ast.stmt]:
        return [ast.Expr(self.node.body)] if isinstance(self.node, ast.Lambda) else self.node.body

    @property
    def arguments(self) -> ast.arguments:
        """Its parameters."""
        return self.node.args

    @property
    def is_asynchronous(self) -> bool:
        """Calling it gives a coroutine."""
        return isinstance(self.node, ast.AsyncFunctionDef)


def function_code(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, around: ScopeKind
) -> FunctionCode:
    """The code of a function defined in a scope; its body is not compiled yet."""
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    return FunctionCode(name, node, around, around.place(node))
