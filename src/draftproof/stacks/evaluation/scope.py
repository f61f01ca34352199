"""Which names belong to a function, and the frames that hold their values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import FunctionValue

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.modules import ModuleValue
    from draftproof.stacks.evaluation.run import Run

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_NEW_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator)


class Frame:
    """The names of one running function, class body, comprehension or module."""

    __slots__ = ("function", "handled", "limit", "module", "names", "parent", "returned", "run", "yielded")

    def __init__(
        self,
        run: Run,
        module: ModuleValue,
        names: dict[str, Value],
        parent: Frame | None,
        function: FunctionValue | None = None,
    ) -> None:
        self.run = run
        self.module = module
        self.names = names
        self.parent = parent
        self.function = function
        self.returned: Value = None
        self.yielded: list[Value] | None = None
        self.handled: list[Value] = []
        """Exceptions that are being handled, the innermost last."""
        self.limit: int | None = None
        """Position of the running statement of a module: names have the value that they had before it."""


def bound_names(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """Names that a block binds in its own scope, without those declared global or nonlocal."""
    bound: set[str] = set()
    elsewhere: set[str] = set()
    for node in own_nodes(statements):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            elsewhere.update(node.names)
        else:
            bound.update(_names_bound_by(node))
    return frozenset(bound - elsewhere)


def global_names(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """Names that a block declares global."""
    return frozenset(
        name for node in own_nodes(statements) if isinstance(node, ast.Global) for name in node.names
    )


def parameter_names(arguments: ast.arguments) -> tuple[str, ...]:
    """Every parameter of a function."""
    extra = [entry.arg for entry in (arguments.vararg, arguments.kwarg) if entry is not None]
    listed = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return (*(entry.arg for entry in listed), *extra)


def is_generator(statements: Iterable[ast.stmt]) -> bool:
    """Whether a function's body yields."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(statements))


def own_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a block that belong to its own scope: not the bodies of functions and classes in it."""
    pending: list[ast.AST] = list(statements)[::-1]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Lambda):
            pending.extend(node.args.defaults)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending.extend(node.decorator_list)
            pending.extend(node.args.defaults)
        elif isinstance(node, ast.ClassDef):
            pending.extend(node.decorator_list)
            pending.extend(node.bases)
        elif isinstance(node, _COMPREHENSIONS):
            pending.extend(_outer_parts(node))
        elif not isinstance(node, _LEAVES):
            # As ast.iter_child_nodes, in a third of the time.
            for value in node.__dict__.values():
                if isinstance(value, list):
                    pending.extend([item for item in value if isinstance(item, ast.AST)])
                elif isinstance(value, ast.AST):
                    pending.append(value)


def _outer_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Of a comprehension: its walrus targets belong to the scope around it, its loop variables do not."""
    for child in ast.walk(node):
        if isinstance(child, ast.NamedExpr):
            yield child


def _names_bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield (alias.asname or alias.name).split(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name:
            yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
