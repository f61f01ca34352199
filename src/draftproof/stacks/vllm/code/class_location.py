"""In which file a registered class is defined: packages pick one of several copies by platform.

Only NVIDIA GPUs are judged: wherever vLLM asks for the platform, the answer here is CUDA.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree

_OTHER_PLATFORMS = ("is_rocm", "is_xpu", "is_cpu", "is_tpu", "is_hpu", "is_neuron", "is_out_of_tree")
_HOPS = 12
"""Re-exports that are followed; the stacks have up to three."""


@dataclass(frozen=True)
class ClassSite:
    """Where a class is defined.

    Attributes:
        file: path in the tree.
        name: of the class in that file; it may differ from the registered name.
        place: of its `class` line.
    """

    file: str
    name: str
    place: Place


def locate_class(tree: SourceTree, module: str, name: str) -> Reading[ClassSite]:
    """Where the class of a module is defined, followed through re-exports as on CUDA.

    Args:
        tree: the source.
        module: dotted name of a module or package: "vllm.models.deepseek_v32".
        name: the class as it is asked of the module.
    """
    for _ in range(_HOPS):
        file = module_file(tree, module)
        if file is None:
            return absent(f"{module} is neither a file nor a package of this tree")
        try:
            syntax = tree.syntax(file)
        except SourceError as error:
            return not_understood(f"looked for class {name}: {error}", Place(file, error.line or 1))
        step = _step(syntax, file, name)
        if isinstance(step, ClassSite):
            return found(step, f"class {step.name}", step.place)
        if step is None:
            return absent(f"{file} neither defines nor imports {name}", Place(file, 1))
        origin, name = step
        module = origin if not origin.startswith(".") else _absolute(module, file, origin)
    return not_understood(f"looked for class {name} through {_HOPS} re-exports of {module}")


def module_file(tree: SourceTree, module: str) -> str | None:
    """The file of a module, or a package's __init__.py; None when the tree has neither."""
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if tree.has(file):
            return file
    return None


def _step(syntax: ast.Module, file: str, name: str) -> ClassSite | tuple[str, str] | None:
    """The class itself; or the module and name that it is imported from; or nothing."""
    modules: dict[str, str] = {}
    for statement in _reached(syntax.body, name, syntax):
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return ClassSite(file, name, Place(file, statement.lineno))
        if isinstance(statement, ast.ImportFrom):
            origin = "." * statement.level + (statement.module or "")
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return origin, alias.name
                modules[alias.asname or alias.name] = _joined(origin, alias.name)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
            targets = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if name in targets:
                return _step(syntax, file, statement.value.id)
        if isinstance(statement, ast.Return) and statement.value is not None:
            origin = modules.get(_module_in(statement.value), "")
            if origin:
                return origin, name
    return None


def _module_in(returned: ast.expr) -> str:
    """The module whose attribute a `__getattr__` returns: `module.Class` or `getattr(module, name)`."""
    if isinstance(returned, ast.Attribute) and isinstance(returned.value, ast.Name):
        return returned.value.id
    if (
        isinstance(returned, ast.Call)
        and isinstance(returned.func, ast.Name)
        and returned.func.id == "getattr"
    ):
        first = returned.args[0] if returned.args else None
        return first.id if isinstance(first, ast.Name) else ""
    return ""


def _reached(statements: Sequence[ast.stmt], asked: str, syntax: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported on CUDA, and those of its `__getattr__` for a name."""
    for statement in statements:
        if isinstance(statement, ast.If):
            answer = on_cuda(statement.test)
            if answer is None:
                answer = _asks_for(statement.test, asked, syntax)
            if answer is not False:
                yield from _reached(statement.body, asked, syntax)
            if answer is not True:
                yield from _reached(statement.orelse, asked, syntax)
        elif isinstance(statement, ast.Try):
            yield from _reached([*statement.body, *statement.orelse, *statement.finalbody], asked, syntax)
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__":
            yield from _reached(statement.body, asked, syntax)
        else:
            yield statement


def _asks_for(test: ast.expr, asked: str, syntax: ast.Module) -> bool | None:
    """The answer of `name == "Class"` and `name in (...)` inside a `__getattr__`; None for other tests."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return None
    operand = test.comparators[0]
    if isinstance(test.ops[0], ast.Eq) and isinstance(operand, ast.Constant):
        return bool(operand.value == asked)
    if isinstance(test.ops[0], ast.In):
        if isinstance(operand, ast.Name):
            operand = _assigned(syntax, operand.id) or operand
        if isinstance(operand, (ast.Set, ast.List, ast.Tuple)):
            return asked in [item.value for item in operand.elts if isinstance(item, ast.Constant)]
    return None


def _assigned(syntax: ast.Module, name: str) -> ast.expr | None:
    for statement in syntax.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in statement.targets
        ):
            return statement.value
    return None


def on_cuda(test: ast.expr) -> bool | None:
    """The answer of a test about the platform on an NVIDIA GPU; None for any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = on_cuda(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        answers = [on_cuda(value) for value in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive
    if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        if test.func.attr in ("is_cuda", "is_cuda_alike"):
            return True
        if test.func.attr in _OTHER_PLATFORMS:
            return False
    return None


def _absolute(module: str, file: str, relative: str) -> str:
    """The full name of a relative import in a file."""
    dots = len(relative) - len(relative.lstrip("."))
    parts = module.split(".")
    drop = dots - 1 if file.endswith("/__init__.py") else dots
    base = parts[: len(parts) - drop] if drop else parts
    rest = relative.lstrip(".")
    return ".".join([*base, rest] if rest else base)


def _joined(origin: str, name: str) -> str:
    """A module's name below another, which may be relative: "." and "nvidia"."""
    return f"{origin}{name}" if origin.endswith(".") else f"{origin}.{name}"
