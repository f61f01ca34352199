"""Which tensors a loader asks for, by following its calls and putting its f-strings together.

draftproof's loader names every tensor by a literal below a prefix that its caller passes on. The follower
walks from one method on, keeps the strings that parameters stand for, and notes every name that reaches the
account of tensors. Parts of a name that are not known (an expert's number) are holes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from draftproof.errors import SourceError
from draftproof.stacks.classes import Function, find_class, module_file, statements_of
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

MOST_DEEP = 16
HOLE = None
Template = tuple[str | None, ...]
"""Pieces of a string; None for a piece that is not known."""


class AskedKind(Enum):
    """What is asked for under a name."""

    TENSOR = "a tensor of exactly that name"
    MODULE = "a matrix with its scales, by the name of its module"


@dataclass(frozen=True)
class AskedName:
    """One name that the loader asks for.

    Attributes:
        template: the name; None for parts that are not known.
        kind: tensor or module.
        place: the call.
    """

    template: Template
    kind: AskedKind
    place: Place

    @property
    def shown(self) -> str:
        """The name with "{e}" for an expert's number and "{n}" for other parts that are not known."""
        text = ""
        for piece in self.template:
            text += ("{e}" if text.endswith(".experts.") else "{n}") if piece is HOLE else piece
        return text

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the whole names that it can mean; a hole holds no dot."""
        return pattern_of(self.template)


@dataclass(frozen=True)
class FollowerFacts:
    """What is known about the model that is loaded.

    Attributes:
        types: names of the classes that `isinstance` is true for.
        truths: whether an attribute of the model's description is true, by its name.
        has: whether the checkpoint holds a tensor that matches.
        readers: functions that read a matrix with its scales from a module's name, by name, with the position
            of that argument.
        takers: methods that take one tensor by its name.
    """

    types: frozenset[str]
    truths: Mapping[str, bool]
    has: Callable[[re.Pattern[str]], bool]
    readers: Mapping[str, int]
    takers: frozenset[str]


def pattern_of(template: Template) -> re.Pattern[str]:
    """An expression for the whole names that a template can mean."""
    return re.compile("".join("[^.]+" if piece is HOLE else re.escape(piece) for piece in template))


def asked_names(
    tree: SourceTree, file: str, class_name: str, method: str, facts: FollowerFacts
) -> tuple[AskedName, ...] | None:
    """Every name that a method asks for, calls followed; None when there is no such method.

    Raises:
        SourceError: a file on the way cannot be read or parsed.
    """
    owner = find_class(tree, file, class_name)
    function = owner.method(method) if owner else None
    if owner is None or function is None:
        return None
    follower = _Follower(tree, facts)
    follower.follow(_Place(owner.file, class_name), function, {}, 0)
    return tuple(dict.fromkeys(follower.found))


@dataclass(frozen=True)
class _Place:
    """Where a function stands: its file, and its class when it is a method."""

    file: str
    class_name: str | None


class _Follower:
    def __init__(self, tree: SourceTree, facts: FollowerFacts) -> None:
        self._tree = tree
        self._facts = facts
        self.found: list[AskedName] = []

    def follow(self, where: _Place, function: Function, bound: Mapping[str, Template], depth: int) -> None:
        """One function with what is known about its parameters."""
        if depth > MOST_DEEP:
            raise SourceError(f"{where.file}: calls are nested too deep to follow", where.file)
        _Walk(self, where, dict(bound), depth).body(function.body)

    def call(self, where: _Place, name: str, arguments: Sequence[Template | None], depth: int) -> None:
        """A call of a function of the module, by its plain name; followed when it is given a name."""
        target = self._function(where.file, name) if any(arguments) else None
        if target is not None:
            place, function = target
            self.follow(place, function, _bind(function, arguments, skip=0), depth + 1)

    def method(self, where: _Place, name: str, arguments: Sequence[Template | None], depth: int) -> None:
        """A call of a method of the same class."""
        owner = find_class(self._tree, where.file, where.class_name) if where.class_name else None
        function = owner.method(name) if owner else None
        if function is not None:
            self.follow(where, function, _bind(function, arguments, skip=1), depth + 1)

    def note(self, template: Template, kind: AskedKind, where: _Place, line: int) -> None:
        self.found.append(AskedName(template, kind, Place(where.file, line)))

    @property
    def facts(self) -> FollowerFacts:
        return self._facts

    def _function(self, file: str, name: str) -> tuple[_Place, Function] | None:
        for statement in statements_of(self._tree.syntax(file).body):
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return _Place(file, None), statement
            if isinstance(statement, ast.ImportFrom) and not statement.level:
                for alias in statement.names:
                    source = module_file(self._tree, statement.module or "")
                    if (alias.asname or alias.name) == name and source and source != file:
                        return self._function(source, alias.name)
        return None


class _Walk:
    """The statements of one function, in order."""

    def __init__(self, follower: _Follower, where: _Place, bound: dict[str, Template], depth: int) -> None:
        self._follower = follower
        self._where = where
        self._texts = bound
        self._truths: dict[str, bool] = {}
        self._takers: set[str] = set()
        self._depth = depth

    def body(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether a return or raise was met."""
        return any(self._statement(statement) for statement in statements)

    def _statement(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            return self._branch(statement)
        if isinstance(statement, ast.For | ast.While | ast.With):
            self._expressions(statement.iter if isinstance(statement, ast.For) else statement)
            return self.body(statement.body)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._remember(statement.targets[0], statement.value)
        self._expressions(statement)
        return isinstance(statement, ast.Return | ast.Raise)

    def _branch(self, statement: ast.If) -> bool:
        known = self._decide(statement.test)
        if known is None:
            first, second = self.body(statement.body), self.body(statement.orelse)
            return first and second
        return self.body(statement.body if known else statement.orelse)

    def _remember(self, target: ast.expr, value: ast.expr) -> None:
        """Local names that stand for a text, a truth, or a method that takes tensors."""
        if not isinstance(target, ast.Name):
            return
        text, truth = self._text(value), self._decide(value)
        if text is not None:
            self._texts[target.id] = text
        if truth is not None:
            self._truths[target.id] = truth
        if isinstance(value, ast.Attribute) and value.attr in self._follower.facts.takers:
            self._takers.add(target.id)

    def _expressions(self, node: ast.AST) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Call):
                self._call(child)

    def _call(self, call: ast.Call) -> None:
        arguments = [self._text(argument) for argument in call.args]
        callee = call.func
        if isinstance(callee, ast.IfExp):
            known = self._decide(callee.test)
            for chosen in (callee.body, callee.orelse) if known is None else ():
                self._named(chosen, arguments, call.lineno)
            if known is not None:
                self._named(callee.body if known else callee.orelse, arguments, call.lineno)
            return
        self._named(callee, arguments, call.lineno)

    def _named(self, callee: ast.expr, arguments: Sequence[Template | None], line: int) -> None:
        facts = self._follower.facts
        if isinstance(callee, ast.Attribute):
            if callee.attr in facts.takers:
                self._take(arguments, line)
            elif isinstance(callee.value, ast.Name) and callee.value.id == "self":
                self._follower.method(self._where, callee.attr, arguments, self._depth)
        elif isinstance(callee, ast.Name) and callee.id in self._takers:
            self._take(arguments, line)
        elif isinstance(callee, ast.Name) and callee.id in facts.readers:
            position = facts.readers[callee.id]
            module = arguments[position] if position < len(arguments) else None
            if module is not None:
                self._follower.note(module, AskedKind.MODULE, self._where, line)
        elif isinstance(callee, ast.Name):
            self._follower.call(self._where, callee.id, arguments, self._depth)

    def _take(self, arguments: Sequence[Template | None], line: int) -> None:
        if arguments and arguments[0] is not None:
            self._follower.note(arguments[0], AskedKind.TENSOR, self._where, line)

    def _text(self, node: ast.expr) -> Template | None:
        """A string with holes; None for anything else."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return (node.value,)
        if isinstance(node, ast.Name):
            return self._texts.get(node.id)
        if not isinstance(node, ast.JoinedStr):
            return None
        pieces: list[str | None] = []
        for value in node.values:
            inner = value.value if isinstance(value, ast.FormattedValue) else value
            pieces.extend(self._text(inner) or (HOLE,))
        return tuple(pieces)

    def _decide(self, test: ast.expr) -> bool | None:
        """A test about the model or the checkpoint; None when it is about something else."""
        facts = self._follower.facts
        if isinstance(test, ast.Name):
            return self._truths.get(test.id)
        if isinstance(test, ast.Attribute):
            return facts.truths.get(test.attr)
        if not isinstance(test, ast.Call) or not test.args:
            return None
        name = test.func.attr if isinstance(test.func, ast.Attribute) else getattr(test.func, "id", "")
        if name == "isinstance" and len(test.args) == 2 and isinstance(test.args[1], ast.Name):
            return test.args[1].id in facts.types
        text = self._text(test.args[0])
        return facts.has(pattern_of(text)) if name == "has" and text is not None else None


def _bind(function: Function, arguments: Sequence[Template | None], skip: int) -> dict[str, Template]:
    names = [argument.arg for argument in function.args.args][skip:]
    return {name: text for name, text in zip(names, arguments, strict=False) if text is not None}
