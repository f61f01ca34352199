"""What SGLang's server arguments are when nobody gives them, as their declarations say."""

from __future__ import annotations

import ast

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree

_FOLDERS = ("sglang/srt/arg_groups/fields",)
_FILES = ("sglang/srt/server_args.py",)

Default = str | int | float | bool | None


def argument_defaults(tree: SourceTree) -> dict[str, Default]:
    """Names of the arguments with a constant default; the others are left out.

    Files that cannot be read count as having none.
    """
    defaults: dict[str, Default] = {}
    for file in (*_FILES, *(file for folder in _FOLDERS for file in tree.files(folder))):
        try:
            module = tree.syntax(file)
        except SourceError:
            continue
        for cls in module.body:
            if isinstance(cls, ast.ClassDef):
                for statement in cls.body:
                    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                        _note(defaults, statement.target.id, statement.value)
    return defaults


def argument_groups(tree: SourceTree) -> tuple[str, ...]:
    """The names under which later versions group their arguments: "moe", "kernel"."""
    groups = []
    for file in (file for folder in _FOLDERS for file in tree.files(folder)):
        try:
            module = tree.syntax(file)
        except SourceError:
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                is_path = any(isinstance(name, ast.Name) and name.id == "_NS_PATH" for name in node.targets)
                if is_path and "." in str(node.value.value):
                    groups.append(str(node.value.value).rpartition(".")[2])
    return tuple(groups)


def _note(defaults: dict[str, Default], name: str, value: ast.expr | None) -> None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str | int | float | bool | None):
        defaults.setdefault(name, value.value)
