"""Modules of the tree, evaluated lazily: a name's statements run when the name is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.module_source import ModuleSource
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import ABSENT
from draftproof.stacks.place import Place

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run


class ModuleValue:
    """A module of the tree in one run, or a part of the standard library that the evaluator knows.

    Attributes:
        dotted: full name.
        namespace: names that have been evaluated.
    """

    def __init__(self, run: Run, dotted: str, source: ModuleSource, namespace: dict[str, Value]) -> None:
        self.run = run
        self.dotted = dotted
        self.source = source
        self.namespace = namespace
        self.frame = Frame(run, self, namespace, None)
        self._started: set[int] = set()
        self._settled: set[str] = set()

    def __repr__(self) -> str:
        return f"<module '{self.dotted}'>"

    def own(self, name: str, before: int | None = None) -> Value:
        """The value of a name for the module's own code, which its `__getattr__` is not asked for."""
        if name not in self._settled:
            self._evaluate(name, before)
        if name in self.namespace:
            return self.namespace[name]
        return self._elsewhere(name, asks=False)

    def lookup(self, name: str, before: int | None = None) -> Value:
        """The value of a name; `ABSENT` when the module has no such name.

        Args:
            name: of the module.
            before: as it is before the statement at this position; None for the finished module.
        """
        if name not in self._settled:
            self._evaluate(name, before)
        if name in self.namespace:
            return self.namespace[name]
        return self._elsewhere(name)

    def assign(self, name: str, value: Value) -> None:
        """Bind a name, as a function with `global name` does."""
        self.lookup(name)
        self.namespace[name] = value

    def carry_out(self) -> None:
        """Run every statement that has not run yet, in order, as an import does."""
        for position in range(len(self.source.statements)):
            if position not in self._started:
                self._started.add(position)
                self._execute(position)

    def names(self) -> tuple[str, ...]:
        """The names that its statements bind."""
        return tuple(dict.fromkeys((*self.source.binders, *self.namespace)))

    def _evaluate(self, name: str, before: int | None) -> None:
        substitute = self.run.program.substitute(self.run, f"{self.dotted}.{name}")
        if substitute is not ABSENT:
            self.namespace[name] = substitute
            self._settled.add(name)
            return
        for position in self.source.binders.get(name, ()):
            if before is not None and position >= before:
                return
            if position not in self._started:
                if name in self.namespace:
                    self._let_read(name, position)
                self._started.add(position)
                self._execute(position)
        self._settled.add(name)

    def _let_read(self, name: str, changed_at: int) -> None:
        """Before a name's value changes, the statements above that read the old one have their turn."""
        for position in self.source.readers(name):
            if position < changed_at and position not in self._started:
                self._started.add(position)
                try:
                    self._execute(position)
                except Raised:
                    # It fails again, and then for good, when a name that it binds is asked for.
                    self._started.discard(position)

    def _execute(self, position: int) -> None:
        node = self.source.statements[position]
        frame = Frame(self.run, self, self.namespace, None)
        frame.limit = position
        place = Place(self.source.file, node.lineno)
        self.run.tick(place)
        kept = {
            name: self.namespace[name]
            for name in self._settled
            if name in self.namespace and self.run.program.is_substituted(f"{self.dotted}.{name}")
        }
        self.run.compiled_module_statement(self, node)(frame)
        self.namespace.update(kept)

    def _elsewhere(self, name: str, asks: bool = True) -> Value:
        """What a module has without binding it: dunder names, star imports, submodules, `__getattr__`."""
        if name == "__name__":
            return self.dotted
        if name == "__file__":
            return self.source.file
        for position in self.source.stars:
            if position not in self._started:
                value = self._from_star(position, name)
                if value is not ABSENT:
                    self.namespace[name] = value
                    return value
        if self.run.program.has_module(f"{self.dotted}.{name}"):
            return self.run.module(f"{self.dotted}.{name}")
        if not asks or name.startswith("__") or "__getattr__" not in self.source.binders:
            return ABSENT
        function = self.lookup("__getattr__")
        return self.run.call(function, (name,), {}, Place(self.source.file, 1))

    def _from_star(self, position: int, name: str) -> Value:
        if name.startswith("_"):
            return ABSENT
        node = self.source.statements[position]
        dotted = absolute_name(self.source, getattr(node, "module", None), getattr(node, "level", 0))
        self._started.add(position)
        try:
            module = self.run.module(dotted)
            return module.lookup(name) if isinstance(module, ModuleValue) else ABSENT
        finally:
            self._started.discard(position)


def absolute_name(source: ModuleSource, module: str | None, level: int) -> str:
    """The full name of the module in a `from` import."""
    if level == 0:
        return module or ""
    package = source.package
    for _ in range(level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{module}" if module else package
