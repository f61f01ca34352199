"""Reads vLLM's command line from its source: every `add_argument`, and the fields that options come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from draftproof.errors import SourceError
from draftproof.stacks.classes import ClassSource, Function, find_class, find_method
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import Option, ValueKind
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.definitions import find_definition
from draftproof.stacks.vllm.launch.config_fields import ConfigField, config_fields, fields_of
from draftproof.stacks.vllm.launch.declared_options import (
    ARGUMENTS,
    DeclaredOption,
    DeclaredOptions,
    Derivation,
    boolean,
    derived,
    read_derivation,
)

SERVE = "vllm/entrypoints/cli/serve.py"
MAKER = "make_arg_parser"
ENGINE_CLASSES = ("EngineArgs", "AsyncEngineArgs")
FRONTEND_CLASS = "FrontendArgs"
CUSTOMISING = ("_customize_cli_kwargs", "add_cli_args")
LEAST_OPTIONS = 80
"""Fewer means that most of the declarations were not recognised; the versions seen have over 200."""


@dataclass
class _Reader:
    """What is known on the way through one function that adds options."""

    tree: SourceTree
    file: str
    how: Derivation
    classes: dict[str, tuple[ConfigField, ...]] = field(default_factory=dict)
    single: dict[str, tuple[str, str]] = field(default_factory=dict)
    changed: dict[tuple[str, str], dict[str, ast.expr]] = field(default_factory=dict)


def read_options(tree: SourceTree) -> Reading[DeclaredOptions]:
    """Every option of `vllm serve` in this version; kept as long as its source is the same."""
    return remember(tree, "vllm-options", _read_options, Reading[DeclaredOptions])


def _read_options(tree: SourceTree) -> Reading[DeclaredOptions]:
    wanted = f"{MAKER} as {SERVE} imports it, and add_cli_args of {', '.join(ENGINE_CLASSES)} in {ARGUMENTS}"
    try:
        how = read_derivation(tree)
        maker = find_definition(tree, SERVE, MAKER)
        if how is None or maker is None or not isinstance(maker.node, ast.FunctionDef):
            return not_understood(f"looked for {wanted}; one of them is not there", Place(ARGUMENTS, 1))
        declared = list(_from_function(tree, maker.file, maker.node, how))
        declared += _frontend(tree, maker.file, how)
        for name in ENGINE_CLASSES:
            cls = find_class(tree, ARGUMENTS, name)
            method = cls.method("add_cli_args") if cls is not None else None
            if method is not None:
                declared += _from_function(tree, ARGUMENTS, method, how)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if len(declared) < LEAST_OPTIONS:
        return not_understood(f"looked for {wanted}; only {len(declared)} options were recognised", how.place)
    options = DeclaredOptions(tuple(declared))
    return found(options, f"{len(declared)} options of vllm serve", how.place)


def _frontend(tree: SourceTree, file: str, how: Derivation) -> Iterator[DeclaredOption]:
    """Options of the server: one for each field of a class, changed by its own methods."""
    cls = find_class(tree, file, FRONTEND_CLASS)
    if cls is None:
        return
    reader = _Reader(tree, cls.file, how)
    for name in CUSTOMISING:
        for method in _methods(tree, cls, name):
            _note_changes(reader, method)
    for entry in fields_of(tree, cls):
        name = f"--{entry.name.replace('_', '-')}"
        changes = next((v for (_, key), v in reader.changed.items() if key == entry.name), {})
        for option in derived(entry, (name,), entry.place, how):
            yield _with_changes(option, changes)


def _methods(tree: SourceTree, cls: ClassSource, name: str) -> Iterator[Function]:
    method = find_method(tree, cls, name)
    while method is not None:
        yield method.node
        method = find_method(tree, cls, name, after=method.owner.name)


def _from_function(
    tree: SourceTree, file: str, function: Function, how: Derivation
) -> Iterator[DeclaredOption]:
    reader = _Reader(tree, file, how)
    for node in _in_order(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            _note_assignment(reader, node)
        elif isinstance(node, ast.Call) and _is_add_argument(node):
            yield from _added(reader, node)


def _in_order(function: Function) -> list[ast.Assign | ast.AugAssign | ast.Call]:
    """Assignments and calls in the order of their lines."""
    nodes = [n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.AugAssign | ast.Call)]
    return sorted(nodes, key=lambda n: (n.lineno, n.col_offset))


def _is_add_argument(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"


def _note_changes(reader: _Reader, function: Function) -> None:
    for node in _in_order(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            _note_assignment(reader, node)


def _note_assignment(reader: _Reader, node: ast.Assign | ast.AugAssign) -> None:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    value = node.value
    if isinstance(target, ast.Name):
        _note_name(reader, target.id, value)
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        subject = _subject(reader, target.value)
        if subject is not None:
            key = str(target.slice.value)
            plain = value if isinstance(node, ast.Assign) else ast.Constant("extended")
            reader.changed.setdefault(subject, {})[key] = plain


def _note_name(reader: _Reader, name: str, value: ast.expr) -> None:
    """`x_kwargs = get_kwargs(SomeConfig)` and `y_kwargs = x_kwargs["field"]`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("get_kwargs") and value.args:
        config = ast.unparse(value.args[0])
        reader.classes[name] = config_fields(reader.tree, reader.file, config)
        return
    subject = _subject(reader, value)
    if subject is not None:
        reader.single[name] = subject


def _subject(reader: _Reader, node: ast.expr) -> tuple[str, str] | None:
    """The (variable, field) that an expression means."""
    if isinstance(node, ast.Name):
        return reader.single.get(node.id)
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Constant)
    ):
        return node.value.id, str(node.slice.value)
    return None


def _added(reader: _Reader, call: ast.Call) -> Iterator[DeclaredOption]:
    names = tuple(
        str(a.value) for a in call.args if isinstance(a, ast.Constant) and str(a.value).startswith("-")
    )
    if not names:
        return
    names = tuple(sorted(names, key=lambda name: not name.startswith("--")))
    place = Place(reader.file, call.lineno)
    explicit = {entry.arg: entry.value for entry in call.keywords if entry.arg is not None}
    subject = None
    for entry in call.keywords:
        if entry.arg is None:
            subject, more = _unpacked(reader, entry.value)
            explicit = {**more, **explicit}
    config = _field(reader, subject) if subject is not None else None
    if config is None:
        yield from _plain(names, place, explicit, reader.how, certain=subject is None)
        return
    changes = {**reader.changed.get(subject or ("", ""), {}), **explicit}
    for option in derived(config, names, place, reader.how):
        yield _with_changes(option, changes)


def _unpacked(reader: _Reader, node: ast.expr) -> tuple[tuple[str, str] | None, dict[str, ast.expr]]:
    """`**x["f"]`, `**y`, and `**{**x["f"], "default": None}`."""
    if not isinstance(node, ast.Dict):
        return _subject(reader, node), {}
    subject = None
    explicit: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            subject = _subject(reader, value) or subject
        elif isinstance(key, ast.Constant):
            explicit[str(key.value)] = value
    return subject, explicit


def _field(reader: _Reader, subject: tuple[str, str]) -> ConfigField | None:
    variable, name = subject
    return next((entry for entry in reader.classes.get(variable, ()) if entry.name == name), None)


def _plain(
    names: tuple[str, ...], place: Place, explicit: dict[str, ast.expr], how: Derivation, certain: bool
) -> Iterator[DeclaredOption]:
    """An option that says everything itself; of one whose field was not found only the name is certain."""
    default = ast.unparse(explicit["default"]) if "default" in explicit else ""
    action = ast.unparse(explicit["action"]) if "action" in explicit else ""
    if "BooleanOptionalAction" in action:
        yield from boolean(names[0], names, default, place, how)
        return
    choices = _choices(explicit.get("choices"))
    kind = ValueKind.FLAG if "store_true" in action or "store_false" in action else ValueKind.STRING
    if certain and "type" in explicit:
        kind = _explicit_kind(ast.unparse(explicit["type"])) or kind
    if "nargs" in explicit and kind is not ValueKind.FLAG and ast.unparse(explicit["nargs"]) != "'?'":
        kind = ValueKind.LIST
    deprecated = "deprecated" if "deprecated" in explicit or "Deprecated" in action else ""
    yield DeclaredOption(Option(names[0], names[1:], kind, choices, default, place, deprecated))


def _with_changes(option: DeclaredOption, changes: dict[str, ast.expr]) -> DeclaredOption:
    """What assignments and keywords change about a derived option."""
    plain = option.option
    if "type" in changes:
        text = ast.unparse(changes["type"])
        plain = replace(plain, kind=_explicit_kind(text) or plain.kind)
        option = replace(option, folds=option.folds or ".lower()" in text)
    if "choices" in changes:
        plain = replace(plain, choices=_choices(changes["choices"]))
    if "default" in changes:
        plain = replace(plain, default=ast.unparse(changes["default"]))
    if "deprecated" in changes:
        plain = replace(plain, deprecated="deprecated")
    return replace(option, option=plain)


def _explicit_kind(text: str) -> ValueKind | None:
    if "json.loads" in text:
        return ValueKind.JSON
    return {"int": ValueKind.INTEGER, "float": ValueKind.NUMBER, "str": ValueKind.STRING}.get(text)


def _choices(node: ast.expr | None) -> tuple[str, ...]:
    """Values of a plain list; nothing for a computed one, so that no value is refused."""
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(str(e.value) for e in node.elts if isinstance(e, ast.Constant))
    return ()
