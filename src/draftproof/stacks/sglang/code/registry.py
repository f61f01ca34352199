"""Which classes SGLang can load: the names in `EntryClass` of the modules directly in srt/models."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.classes import ClassSource, find_class, statements_of
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree

MODELS = "sglang/srt/models"
REGISTRY = f"{MODELS}/registry.py"
_DISCOVERY = "import_model_classes"
_ENTRY = "EntryClass"


@dataclass(frozen=True)
class Registration:
    """A class that the registry finds.

    Attributes:
        cls: the class.
        place: the line of `EntryClass` that names it.
    """

    cls: ClassSource
    place: Place


def discovery(tree: SourceTree) -> Reading[str]:
    """Whether the registry collects `EntryClass` of the modules directly in a package, and from which one."""
    looked = f"looked for {_DISCOVERY} in {REGISTRY} that reads {_ENTRY} of a package's own modules"
    if not tree.has(REGISTRY):
        return not_understood(f"{looked}; there is no such file")
    try:
        module = tree.syntax(REGISTRY)
    except SourceError as error:
        return not_understood(f"{looked}; {error.message}")
    function = next(
        (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == _DISCOVERY), None
    )
    if function is None:
        return not_understood(f"{looked}; there is no such function")
    place = Place(REGISTRY, function.lineno)
    words = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    if not {_ENTRY, "iter_modules", "__name__"} <= words or "ispkg" not in names:
        return not_understood(f"{looked}; it is written in another way", place)
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    packages = {
        str(argument.value)
        for call in calls
        for argument in call.args
        if isinstance(argument, ast.Constant) and argument.value == MODELS.replace("/", ".")
    }
    if not packages:
        return not_understood(f"{looked}; nothing calls it for {MODELS.replace('/', '.')}", place)
    return found(MODELS, f"every {_ENTRY} of the modules directly in {MODELS} is registered", place)


def registered_architectures(tree: SourceTree) -> dict[str, tuple[Place, ...]]:
    """Every name that the modules register, with the lines; modules that cannot be parsed are left out.

    It parses every model file: for one architecture, `registration` is much faster.
    """
    names: dict[str, tuple[Place, ...]] = {}
    for file in tree.files(MODELS):
        try:
            entries = _entries(tree, file)
        except SourceError:
            continue
        for place, element in entries:
            if isinstance(element, ast.Name):
                names[element.id] = (*names.get(element.id, ()), place)
    return names


def registration(tree: SourceTree, architecture: str) -> Reading[Registration]:
    """Where an architecture is registered.

    A module that cannot be parsed is absent for the registry, which only warns about it; so is one whose
    class is named elsewhere but not in its `EntryClass`.
    """
    rule = discovery(tree)
    if not rule.understood:
        return not_understood(rule.sentence, *rule.places)
    if not architecture.isidentifier():
        return absent(f"{architecture or 'an empty name'} is no name of a class", *rule.places)
    broken: list[tuple[str, Place]] = []
    registered: list[Registration] = []
    odd: list[Place] = []
    for file in tree.files(MODELS):
        if not _mentions(tree, file, architecture):
            continue
        try:
            for place, element in _entries(tree, file):
                _collect(tree, architecture, place, element, registered, odd)
        except SourceError as error:
            broken.append((error.message, Place(file, error.line or 1)))
    return _answer(architecture, registered, odd, broken, rule)


def _answer(
    architecture: str,
    registered: list[Registration],
    odd: list[Place],
    broken: list[tuple[str, Place]],
    rule: Reading[str],
) -> Reading[Registration]:
    places = [entry.place for entry in registered]
    if len(registered) > 1:
        return absent(
            f"{architecture} is registered {len(registered)} times, which stops the registry with an "
            "assertion",
            *places,
        )
    if registered:
        return found(registered[0], f"{architecture} is in {_ENTRY} of {places[0].file}", *places)
    if broken:
        message, place = broken[0]
        return absent(
            f"{architecture} is not registered: {message}, and the registry only warns of modules that it "
            "cannot import",
            place,
            *rule.places,
        )
    if odd:
        return not_understood(
            f"looked for {architecture} in {_ENTRY}; it is put together in another way", *odd
        )
    return absent(f"no {_ENTRY} of {MODELS} names {architecture}", *rule.places)


def _mentions(tree: SourceTree, file: str, architecture: str) -> bool:
    try:
        text = tree.text(file)
    except SourceError:
        return False
    return architecture in text and _ENTRY in text


def _entries(tree: SourceTree, file: str) -> list[tuple[Place, ast.expr]]:
    """The elements of the last `EntryClass` of a module."""
    found_entries: list[tuple[Place, ast.expr]] = []
    for statement in statements_of(tree.syntax(file).body):
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == _ENTRY for target in targets):
            elements = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            found_entries = [(Place(file, statement.lineno), element) for element in elements]
    return found_entries


def _collect(
    tree: SourceTree,
    architecture: str,
    place: Place,
    element: ast.expr,
    registered: list[Registration],
    odd: list[Place],
) -> None:
    if not isinstance(element, ast.Name):
        odd.append(place)
        return
    cls = find_class(tree, place.file, element.id)
    if cls is not None and cls.name == architecture:
        registered.append(Registration(cls, place))
    elif cls is None and element.id == architecture:
        odd.append(place)
