"""Whether a draft class does something: bodies of its methods, its own or inherited inside the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.class_location import ClassSite, locate_class

REQUIRED = ("__init__", "forward", "compute_logits", "load_weights")
"""What vLLM calls of a draft model."""
_CLASSES = 40
"""Classes of one line of inheritance that are looked at; the deepest seen has 14."""


@dataclass(frozen=True)
class Method:
    """A method and where it stands.

    Attributes:
        owner: the class that defines it.
        node: its definition.
        place: of the definition.
    """

    owner: ClassSite
    node: ast.FunctionDef
    place: Place


def implementation(tree: SourceTree, site: ClassSite) -> Reading[str]:
    """What a draft class does in forward and weight loading; absent when one of them is a stub."""
    try:
        lineage = tuple(_inherited(tree, site))
    except SourceError as error:
        return not_understood(f"class {site.name}: {error}", site.place)
    methods: list[Method] = []
    for name in REQUIRED:
        method = find_method(tree, lineage, name)
        if method is None:
            outside = _outside_bases(tree, lineage)
            where = f"neither {site.name} nor a class that it inherits from in this tree"
            if outside:
                return not_understood(f"{where} defines {name}; outside are {', '.join(outside)}", site.place)
            return absent(f"{where} defines {name}", site.place)
        if is_stub(method.node):
            sentence = f"{method.owner.name}.{name} is a stub: {_first_line(method.node)}"
            return absent(sentence, method.place, site.place)
        methods.append(method)
    forward = methods[REQUIRED.index("forward")]
    hidden = hidden_state_argument(forward.node)
    if hidden is None:
        sentence = f"{forward.owner.name}.forward does not use the target's hidden states"
        return absent(sentence, forward.place, site.place)
    defined = ", ".join(f"{method.node.name} in {method.owner.name}" for method in methods[1:])
    sentence = f"{defined}; forward uses {hidden}"
    return found(sentence, sentence, *(method.place for method in methods[1:]))


def lineage(tree: SourceTree, site: ClassSite) -> tuple[ClassSite, ...]:
    """A class and those that it inherits from inside the tree, nearest first.

    Raises:
        SourceError: a file of them is no Python.
    """
    return tuple(_inherited(tree, site))


def find_method(tree: SourceTree, classes: tuple[ClassSite, ...], name: str) -> Method | None:
    """The definition that the first of the classes resolves a method's name to."""
    for owner in classes:
        for statement in class_node(tree, owner).body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return Method(owner, statement, Place(owner.file, statement.lineno))
    return None


def class_node(tree: SourceTree, site: ClassSite) -> ast.ClassDef:
    """The definition of a class.

    Raises:
        SourceError: the file is no Python, or has no such class.
    """
    for node in ast.walk(tree.syntax(site.file)):
        if isinstance(node, ast.ClassDef) and node.name == site.name and node.lineno == site.place.line:
            return node
    raise SourceError(f"{site.file} has no class {site.name}", site.file)


def is_stub(node: ast.FunctionDef) -> bool:
    """Whether a method does nothing: pass, ..., a docstring, a constant returned, NotImplementedError."""
    return all(_does_nothing(statement) for statement in node.body)


def hidden_state_argument(forward: ast.FunctionDef) -> str | None:
    """The parameter of a forward that takes the target's hidden states, if the body uses it."""
    arguments = [entry.arg for entry in (*forward.args.args, *forward.args.kwonlyargs)]
    used = {
        node.id
        for statement in forward.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return next((name for name in arguments if "hidden_states" in name and name in used), None)


def _inherited(tree: SourceTree, site: ClassSite) -> Iterator[ClassSite]:
    pending = [site]
    seen: set[Place] = set()
    while pending and len(seen) < _CLASSES:
        current = pending.pop(0)
        if current.place in seen:
            continue
        seen.add(current.place)
        yield current
        bases = []
        for base in class_node(tree, current).bases:
            located = _base(tree, current, base)
            if located is not None:
                bases.append(located)
        pending = [*bases, *pending]


def _base(tree: SourceTree, site: ClassSite, base: ast.expr) -> ClassSite | None:
    """Where a base class is defined; None when it is not in the tree."""
    if isinstance(base, ast.Subscript):
        base = base.value
    if not isinstance(base, ast.Name):
        return None
    module = site.file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    return locate_class(tree, module, base.id).value


def _outside_bases(tree: SourceTree, classes: tuple[ClassSite, ...]) -> list[str]:
    """Bases that are not in the tree and could define what is looked for; torch's Module defines nothing."""
    names = []
    for owner in classes:
        for base in class_node(tree, owner).bases:
            name = ast.unparse(base)
            if _base(tree, owner, base) is None and name not in _KNOWN_OUTSIDE:
                names.append(name)
    return names


_KNOWN_OUTSIDE = frozenset(("nn.Module", "torch.nn.Module", "object", "ABC", "Protocol", "Generic"))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(statement, ast.Delete)


def _first_line(node: ast.FunctionDef) -> str:
    statements = [statement for statement in node.body if not _is_docstring(statement)]
    return ast.unparse(statements[0]).splitlines()[0] if statements else "its body is empty"


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
