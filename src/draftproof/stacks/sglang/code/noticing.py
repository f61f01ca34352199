"""Whether SGLang would notice that a parameter of the head was not written."""

from __future__ import annotations

import ast

from draftproof.errors import SourceError
from draftproof.stacks.classes import find_class
from draftproof.stacks.code_facts import Noticing
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree

LOADER = "sglang/srt/model_loader/loader.py"
_CLASS = "DefaultModelLoader"
_METHOD = "load_weights"


def noticing(tree: SourceTree) -> Reading[Noticing]:
    """What the default loader does with the names that a model says it has loaded."""
    looked = f"looked for the call of model.{_METHOD} in {_CLASS} of {LOADER}"
    try:
        loader = find_class(tree, LOADER, _CLASS)
    except SourceError as error:
        return not_understood(f"{looked}; {error.message}")
    if loader is None:
        return not_understood(f"{looked}; there is no such class")
    dropped: list[Place] = []
    used: list[tuple[Place, bool]] = []
    for function in ast.walk(loader.node):
        if isinstance(function, ast.FunctionDef):
            for statement in ast.walk(function):
                place = Place(LOADER, getattr(statement, "lineno", 0))
                if isinstance(statement, ast.Expr) and _loads(statement.value):
                    dropped.append(place)
                elif isinstance(statement, ast.Assign | ast.AnnAssign) and _loads(statement.value):
                    used.append((place, _raises_after(function, statement.lineno)))
    if dropped:
        return found(
            Noticing.NOTHING, f"{_CLASS} drops the names that {_METHOD} says it has loaded", *dropped
        )
    if used:
        place, raises = used[0]
        if raises:
            return found(Noticing.ERROR, f"{_CLASS} compares what {_METHOD} has loaded and raises", place)
        return found(Noticing.WARNING, f"{_CLASS} keeps what {_METHOD} has loaded and does not raise", place)
    return not_understood(f"{looked}; it calls it in another way", loader.place)


def _loads(node: ast.expr | None) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == _METHOD
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "model"
    )


def _raises_after(function: ast.FunctionDef, line: int) -> bool:
    return any(isinstance(node, ast.Raise) and node.lineno > line for node in ast.walk(function))
