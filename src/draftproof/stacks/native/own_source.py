"""Small questions about draftproof's own source, and the files that hold the answers."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from draftproof.stacks.classes import find_class
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

ARCHITECTURES = "draftproof/architecture/qwen3_5.py"
LOADING = "draftproof/models/loading.py"
ACCOUNT = "draftproof/models/account.py"
STORED_LINEAR = "draftproof/models/stored_linear.py"
HEAD = "draftproof/models/qwen3_5_mtp.py"
BUILD = "draftproof/engine/build.py"
CONFIG = "draftproof/engine/config.py"
STATE_STORE = "draftproof/runtime/state_store.py"
MAIN = "draftproof/cli/main.py"
SERVE, GENERATE = "serve", "generate"
COMMAND_FILES = {SERVE: "draftproof/cli/serve.py", GENERATE: "draftproof/cli/generate.py"}
"""Commands that run a checkpoint, with the files of their functions."""


def dictionary_keys(tree: SourceTree, file: str, name: str) -> dict[str, Place] | None:
    """The text keys of a dictionary at the top level of a module; None when there is no such literal."""
    for statement in tree.syntax(file).body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        value = getattr(statement, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(value, ast.Dict):
            return {
                key.value: Place(file, key.lineno)
                for key in value.keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
    return None


def constant(tree: SourceTree, file: str, name: str) -> tuple[object, Place] | None:
    """A number or text at the top level of a module; None when it is not there."""
    for statement in tree.syntax(file).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            for target in statement.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return statement.value.value, Place(file, statement.lineno)
    return None


def calls_of(tree: SourceTree, file: str, name: str) -> tuple[Place, ...]:
    """Calls of a function or method by its last name."""
    return tuple(
        Place(file, node.lineno)
        for node in ast.walk(tree.syntax(file))
        if isinstance(node, ast.Call) and _last_name(node.func) == name
    )


def function_place(tree: SourceTree, file: str, name: str) -> Place | None:
    """Where a function of a module is written; None when there is none."""
    for node in ast.walk(tree.syntax(file)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Place(file, node.lineno)
    return None


def raises(tree: SourceTree, file: str, class_name: str, method: str) -> tuple[Place, ...]:
    """The raise statements of a method; none when there is no such method."""
    owner = find_class(tree, file, class_name)
    function = owner.method(method) if owner else None
    nodes = ast.walk(function) if function else iter(())
    return tuple(Place(file, node.lineno) for node in nodes if isinstance(node, ast.Raise))


def constant_places(tree: SourceTree, file: str, words: Collection[str]) -> dict[str, Place]:
    """Where words stand in a file: as texts, as last parts of f-strings (".weight_scale"), or as names."""
    wanted, places = set(words), dict[str, Place]()
    for node in ast.walk(tree.syntax(file)):
        for word in _words(node):
            if word in wanted:
                places.setdefault(word, Place(file, getattr(node, "lineno", 1)))
    return places


def skipped_leaves(tree: SourceTree, file: str) -> dict[str, Place]:
    """Parts of a module that a loop over literal names passes to `skip`."""
    found: dict[str, Place] = {}
    for node in ast.walk(tree.syntax(file)):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            inner = [call for line in node.body for call in ast.walk(line) if isinstance(call, ast.Call)]
            if any(_last_name(call.func) == "skip" for call in inner):
                for item in node.iter.elts:
                    if isinstance(item, ast.Constant) and isinstance(item.value, str):
                        found[item.value] = Place(file, item.lineno)
    return found


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.rpartition(".")[2]
    elif isinstance(node, ast.Attribute):
        yield node.attr
