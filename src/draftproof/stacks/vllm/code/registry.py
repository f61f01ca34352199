"""vLLM's table of models: which class serves which architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree

REGISTRY = "vllm/model_executor/models/registry.py"
MODELS = "vllm.model_executor.models"
DRAFT_TABLE = "_SPECULATIVE_DECODING_MODELS"
MERGED_TABLE = "_VLLM_MODELS"
REMOVED_TABLE = "_PREVIOUSLY_SUPPORTED_MODELS"
_TABLE = re.compile(r"_[A-Z0-9_]*MODELS")


@dataclass(frozen=True)
class Registration:
    """One entry of the table.

    Attributes:
        architecture: the name in a config's `architectures`.
        module: dotted name of the module or package, in full.
        class_name: the class in it.
        table: the dictionary that it stands in.
        place: the entry.
    """

    architecture: str
    module: str
    class_name: str
    table: str
    place: Place


@dataclass(frozen=True)
class Registry:
    """All entries of one version.

    Attributes:
        entries: by architecture; of two entries for one name, the one that Python's merge keeps.
        removed: architectures that are no longer served, and the last version that did.
        place: where the tables are merged.
    """

    entries: Mapping[str, Registration]
    removed: Mapping[str, tuple[str, Place]]
    place: Place


def read_registry(tree: SourceTree) -> Reading[Registry]:
    """The table of models."""
    wanted = f"dictionaries called _*_MODELS, merged in {MERGED_TABLE}, in {REGISTRY}"
    try:
        module = tree.syntax(REGISTRY)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    tables = dict(_tables(module))
    merged = tables.get(MERGED_TABLE)
    if merged is None:
        return not_understood(f"looked for {wanted}, and found no such dictionary", Place(REGISTRY, 1))
    entries: dict[str, Registration] = {}
    for name, table in _merged(merged, tables):
        for entry in _entries(name, table):
            entries[entry.architecture] = entry
    place = Place(REGISTRY, merged.lineno)
    if not entries:
        return not_understood(f"looked for {wanted}, and found no entry (module, class)", place)
    return found(Registry(entries, _removed(tables), place), f"{len(entries)} architectures", place)


def registration(tree: SourceTree, architecture: str) -> Reading[Registration]:
    """The entry of one architecture."""
    registry = read_registry(tree)
    if registry.value is None:
        return not_understood(registry.sentence, *registry.places)
    entry = registry.value.entries.get(architecture)
    if entry is not None:
        sentence = f"{architecture} is registered in {entry.table} as {entry.module}.{entry.class_name}"
        return found(entry, sentence, entry.place)
    removed = registry.value.removed.get(architecture)
    if removed is not None:
        version, place = removed
        return absent(f"{architecture} is no longer served; vLLM {version} was the last that did", place)
    looked = f"{architecture or 'an architecture without a name'} is in none of the tables of {REGISTRY}"
    return absent(looked, registry.value.place)


def _tables(module: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            targets: list[ast.expr] = statement.targets
            value: ast.expr | None = statement.value
        elif isinstance(statement, ast.AnnAssign):
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and _TABLE.fullmatch(target.id) and isinstance(value, ast.Dict):
                yield target.id, value


def _merged(merged: ast.Dict, tables: Mapping[str, ast.Dict]) -> Iterator[tuple[str, ast.Dict]]:
    """The tables that the merged one unpacks, in its order; its own entries last, as the table itself."""
    for key, value in zip(merged.keys, merged.values, strict=True):
        if key is None and isinstance(value, ast.Name) and value.id in tables:
            yield value.id, tables[value.id]
    yield MERGED_TABLE, merged


def _entries(table: str, node: ast.Dict) -> Iterator[Registration]:
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            yield from _unpacked(table, value)
        elif isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Tuple):
            parts = [item.value for item in value.elts if isinstance(item, ast.Constant)]
            if len(parts) == 2 and all(isinstance(part, str) for part in parts):
                module, class_name = str(parts[0]), str(parts[1])
                place = Place(REGISTRY, key.lineno)
                yield Registration(key.value, full_module(module), class_name, table, place)


def _unpacked(table: str, value: ast.expr) -> Iterator[Registration]:
    """`**{...}` and `**{name: ... for name in ...}` inside a table; only literal ones can be read."""
    if isinstance(value, ast.Dict):
        yield from _entries(table, value)


def full_module(name: str) -> str:
    """A registry's module name in full: those that do not start with "vllm." lie beside the registry."""
    return name if name.startswith("vllm.") else f"{MODELS}.{name}"


def _removed(tables: Mapping[str, ast.Dict]) -> dict[str, tuple[str, Place]]:
    table = tables.get(REMOVED_TABLE)
    removed = {}
    if table is not None:
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                removed[str(key.value)] = (str(value.value), Place(REGISTRY, key.lineno))
    return removed
