"""The version of a source tree, as its own files state it: constants, never code that is run."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

from draftproof.errors import SourceError
from draftproof.stacks.find.environments import read_bounded
from draftproof.stacks.source import SourceTree

_UNKNOWN = ("dev", "0.0.0", "0.0.0.dev0")
"""What build tools write when they do not know."""


def metadata_version(text: str) -> str:
    """Version in a METADATA or PKG-INFO file; empty when there is none."""
    return (HeaderParser().parsestr(text).get("Version") or "").strip()


def metadata_requirements(text: str) -> tuple[str, ...]:
    """Requires-Dist values of a METADATA or PKG-INFO file, with extras and markers."""
    return tuple(str(value) for value in HeaderParser().parsestr(text).get_all("Requires-Dist", []))


def version_in_source(tree: SourceTree, package: str) -> str:
    """From _version.py or version.py of the package; empty when they hold no constant."""
    for name in (f"{package}/_version.py", f"{package}/version.py"):
        if tree.has(name):
            try:
                found = next(_constants(tree.syntax(name)), "")
            except SourceError:
                continue
            if found and found not in _UNKNOWN:
                return found
    return ""


def version_in_project(folder: Path) -> str:
    """From a pyproject.toml that states it; empty otherwise."""
    project = _project(folder)
    version = project.get("version") if isinstance(project, dict) else None
    return version if isinstance(version, str) else ""


def requirements_in_project(folder: Path) -> tuple[str, ...]:
    """Dependencies that a pyproject.toml states."""
    project = _project(folder)
    listed = project.get("dependencies") if isinstance(project, dict) else None
    return tuple(item for item in listed if isinstance(item, str)) if isinstance(listed, list) else ()


def _project(folder: Path) -> object:
    try:
        return tomllib.loads(read_bounded(folder / "pyproject.toml")).get("project")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _constants(module: ast.Module) -> Iterator[str]:
    """Strings that are assigned to `version` or `__version__` at the top of a module."""
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
            value = statement.value.value if isinstance(statement.value, ast.Constant) else None
            if names & {"version", "__version__"} and isinstance(value, str):
                yield value
