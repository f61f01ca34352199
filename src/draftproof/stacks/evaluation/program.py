"""What all runs of an evaluator share: the tree, compiled code, substitutes, the known standard library."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from draftproof.errors import SourceError
from draftproof.stacks.evaluation.builtin_functions import builtin_values
from draftproof.stacks.evaluation.code import ScopeKind, Statement
from draftproof.stacks.evaluation.compiler import ClosureCompiler
from draftproof.stacks.evaluation.construction import object_methods
from draftproof.stacks.evaluation.errors import builtin_exceptions
from draftproof.stacks.evaluation.logs import make_logger
from draftproof.stacks.evaluation.module_source import ModuleSource
from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.render import repr_of
from draftproof.stacks.evaluation.settings import Named, NotInstalled, Settings
from draftproof.stacks.evaluation.standard_library import operating_system, standard_modules
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import ABSENT, ClassKind, ClassValue, NativeFunction, Symbol
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_DTYPES = (
    "float16", "bfloat16", "float32", "float64", "half", "float", "double", "int8", "int16", "int32", "int64",
    "uint8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn_x2", "float8_e8m0fnu",
)  # fmt: skip
_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}


class Program:
    """Shared by all runs.

    Args:
        tree: the stack's source.
        substitutes: what takes the place of a dotted name.
        settings: bounds and choices.
    """

    def __init__(self, tree: SourceTree, substitutes: Mapping[str, Value], settings: Settings) -> None:
        self.tree = tree
        self.settings = settings
        self.exceptions = builtin_exceptions()
        self.builtins = builtin_values(self.exceptions)
        self.object_methods = object_methods()
        self.frozen_instance_error = self._frozen_error()
        self._compiler = ClosureCompiler()
        self._standard = standard_modules(self.frozen_instance_error)
        self._sources: dict[str, ModuleSource | None] = {}
        self._compiled: dict[ast.stmt, Statement] = {}
        self._substitutes: dict[str, Value] = {**_default_substitutes(), **substitutes}

    def sharing(self, substitutes: Mapping[str, Value], settings: Settings) -> Program:
        """A program on the same tree with other substitutes; what was read and compiled is shared."""
        other = Program(self.tree, substitutes, settings)
        other._compiler, other._sources, other._compiled = self._compiler, self._sources, self._compiled
        return other

    def _frozen_error(self) -> ClassValue:
        base = self.exceptions["AttributeError"]
        error = ClassValue("FrozenInstanceError", (base,), {})
        error.mro = (error, *base.mro)
        error.kind = ClassKind.EXCEPTION
        error.module = "dataclasses"
        return error

    def module(self, run: Run, dotted: str) -> Value:
        """A module by full name; `ABSENT` when it is known not to be there."""
        known = run.modules.get(dotted)
        if known is None:
            known = self._make_module(run, dotted)
            run.modules[dotted] = known
        return known

    def _make_module(self, run: Run, dotted: str) -> Value:
        substitute = self.substitute(run, dotted)
        if substitute is not ABSENT:
            return ABSENT if isinstance(substitute, NotInstalled) else substitute
        source = self.source(dotted)
        if source is not None:
            return ModuleValue(run, dotted, source, {})
        namespace = operating_system(run) if dotted == "os" else self._standard.get(dotted)
        if namespace is not None:
            empty = ModuleSource(
                self._compiler, f"{dotted} (standard library)", dotted, ast.Module(body=[], type_ignores=[])
            )
            return ModuleValue(run, dotted, empty, dict(namespace))
        package, _, name = dotted.rpartition(".")
        if package and name and self.source(package) is not None:
            value = self.module(run, package)
            return (
                value.lookup(name)
                if isinstance(value, ModuleValue) and name in value.source.binders
                else ABSENT
            )
        return Unknown(dotted)

    def has_module(self, dotted: str) -> bool:
        """Whether the tree has a module of that full name."""
        return self.source(dotted) is not None

    @property
    def consulted(self) -> tuple[str, ...]:
        """Dotted names of the modules that were looked for in the tree."""
        return tuple(self._sources)

    def source(self, dotted: str) -> ModuleSource | None:
        """A module's source; None when the tree has none of that name."""
        if dotted not in self._sources:
            self._sources[dotted] = self._read(dotted)
        return self._sources[dotted]

    def _read(self, dotted: str) -> ModuleSource | None:
        if not dotted or not all(part.isidentifier() for part in dotted.split(".")):
            return None
        stem = dotted.replace(".", "/")
        for file in (f"{stem}/__init__.py", f"{stem}.py"):
            if self.tree.has(file):
                return ModuleSource(self._compiler, file, dotted, self.tree.syntax(file))
        if self.tree.walk(stem):
            return ModuleSource(self._compiler, f"{stem}/__init__.py", dotted, ast.Module([], []))
        return None

    def compiled(self, scope: ScopeKind, node: ast.stmt) -> Statement:
        """A module's statement, compiled once."""
        if node not in self._compiled:
            self._compiled[node] = self._compiler.block([node], scope)
        return self._compiled[node]

    def is_substituted(self, dotted: str) -> bool:
        """Whether something takes the place of a name."""
        return dotted in self._substitutes

    def substituted_members(self, dotted: str) -> tuple[str, ...]:
        """The names directly below a dotted name that something takes the place of."""
        prefix = f"{dotted}."
        below = (name[len(prefix) :] for name in self._substitutes if name.startswith(prefix))
        return tuple(name for name in below if "." not in name)

    def substitute(self, run: Run, dotted: str) -> Value:
        """What takes the place of a name in this run; `ABSENT` when nothing does."""
        if dotted not in self._substitutes:
            return ABSENT
        if dotted not in run.substitutes:
            run.substitutes[dotted] = run.materialise(self._substitutes[dotted])
        return run.substitutes[dotted]

    def named(self, run: Run, name: Named) -> Value:
        """A value of the tree by file and dotted name.

        Raises:
            Refused: there is none.
        """
        place = Place(name.file, 1)
        dotted = module_name(name.file)
        try:
            value = self.module(run, dotted)
        except SourceError as error:
            raise run.refused(error.message, place) from error
        first, *rest = name.name.split(".")
        found = value.lookup(first) if isinstance(value, ModuleValue) else ABSENT
        for part in rest:
            if isinstance(found, ClassValue) and found.find(part) is not ABSENT:
                found = found.find(part)
                continue
            found = ABSENT if found is ABSENT else run.attribute(found, part, place)
        if found is ABSENT:
            raise run.refused(f"no {name.name} in {name.file}", place)
        return found

    def repr_text(self, run: Run, value: Value, place: Place) -> str:
        """`repr(value)` for a message, unknown parts in braces."""
        text = repr_of(run, value, place)
        return text.name if isinstance(text, Unknown) else str(text)


def module_name(file: str) -> str:
    """The full name of a module by its file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _default_substitutes() -> dict[str, Value]:
    made: dict[str, Value] = {
        f"torch.{name}": Symbol(f"torch.{_ALIASES.get(name, name)}") for name in _DTYPES
    }
    made["vllm.logger.init_logger"] = NativeFunction("init_logger", make_logger)
    return made
