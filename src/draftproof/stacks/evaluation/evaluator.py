"""Follows a call along every way that unknown values allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.evaluation.errors import Raised, Refused
from draftproof.stacks.evaluation.modules import ModuleValue
from draftproof.stacks.evaluation.outcomes import NotUnderstood, Outcome, RaisedError
from draftproof.stacks.evaluation.program import Program
from draftproof.stacks.evaluation.run import Run
from draftproof.stacks.evaluation.settings import Named, Settings
from draftproof.stacks.evaluation.unknowns import Touched, Unknown, Value
from draftproof.stacks.evaluation.values import BoundMethod, ClassMethod, Instance, StaticMethod
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree


class Evaluator:
    """Runs functions of a stack's source on given values; nothing is imported.

    Compiled code is kept, so one evaluator for many calls is quicker than many evaluators.

    Args:
        tree: the stack's source.
        substitutes: what takes the place of a dotted name: Python's own values, `Unknown`, `Symbol`, `Given`,
            `Named`, `NotInstalled()`, or a Python function of the call's arguments.
        settings: bounds and choices.
    """

    def __init__(
        self,
        tree: SourceTree,
        substitutes: Mapping[str, Any] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._program = Program(tree, substitutes or {}, settings or Settings())

    def sharing(self, substitutes: Mapping[str, Any], settings: Settings | None = None) -> Evaluator:
        """An evaluator of the same tree with other substitutes, which shares what was read and compiled."""
        other = Evaluator.__new__(Evaluator)
        other._program = self._program.sharing(substitutes, settings or self.settings)
        return other

    @property
    def settings(self) -> Settings:
        """Bounds and choices."""
        return self._program.settings

    @property
    def consulted(self) -> tuple[str, ...]:
        """Dotted names of the modules that were looked for in the tree, by this one and those that share."""
        return self._program.consulted

    def call(self, file: str, name: str, *positional: Any, **keywords: Any) -> tuple[Outcome, ...]:
        """Call a function, method or class.

        Args:
            file: path in the tree: "sglang/srt/configs/model_config.py".
            name: "function", "Class" or "Class.method"; for a method that is no static or class method, the
                first positional argument is the object.
            positional: arguments; see the package's description.
            keywords: arguments by name.

        Returns:
            One outcome for each way. A name that is not there gives one that is not understood.
        """
        return self._follow(lambda run: _called(run, Named(file, name), positional, keywords), file)

    def value(self, file: str, name: str) -> tuple[Outcome, ...]:
        """The value of a module's name, or of a class's: "MIMO_V2_MODEL_ARCHS", "Marlin.supported"."""
        return self._follow(lambda run: run.program.named(run, Named(file, name)), file)

    def _follow(self, job: Callable[[Run], Value], file: str) -> tuple[Outcome, ...]:
        """Every way: a run repeats the decisions that lead to a fork, then takes the other branch."""
        outcomes: list[Outcome] = []
        pending: list[list[bool]] = [[]]
        while pending:
            if len(outcomes) >= self.settings.paths:
                outcomes.append(_too_many_ways(self.settings.paths, outcomes[-1], file))
                break
            decisions = pending.pop()
            run = Run(self._program, decisions)
            outcomes.append(_carry_out(run, job, file))
            for position in range(len(decisions), len(run.taken)):
                # Later decisions were taken as True; each has another branch. The earliest is left for last.
                pending.append([*run.taken[:position], False])
        return tuple(outcomes)


def single(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The outcome, when there is only one and it was followed to its end; None otherwise."""
    if len(outcomes) == 1 and outcomes[0].not_understood is None:
        return outcomes[0]
    return None


def _called(run: Run, name: Named, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Value:
    place = Place(name.file, 1)
    function = run.program.named(run, name)
    values = [run.materialise(item) for item in positional]
    named = {key: run.materialise(item) for key, item in keywords.items()}
    if isinstance(function, StaticMethod):
        function = function.function
    elif isinstance(function, ClassMethod):
        owner = run.program.named(run, Named(name.file, name.name.rpartition(".")[0]))
        function = BoundMethod(function.function, owner)
    return run.call(function, values, named, place)


def _carry_out(run: Run, job: Callable[[Run], Value], file: str) -> Outcome:
    returned: Value = None
    raised: RaisedError | None = None
    refused: NotUnderstood | None = None
    try:
        for dotted in run.program.settings.registering:
            module = run.module(dotted)
            if isinstance(module, ModuleValue):
                module.carry_out()
        returned = job(run)
    except Raised as error:
        raised = _described(run, error)
    except Refused as error:
        refused = NotUnderstood(error.reason, error.place)
    except SourceError as error:
        refused = NotUnderstood(error.message, Place(error.file or file, error.line or 1))
    except RecursionError:
        refused = NotUnderstood("code that is nested too deep", Place(file, 1))
    except Touched as error:
        refused = NotUnderstood(f"a use of the unknown {error.unknown.name}", Place(file, 1))
    given = {value.label: value for value in run.given.values()}
    return Outcome(tuple(run.conditions), returned, raised, refused, tuple(run.events), given)


def _described(run: Run, error: Raised) -> RaisedError:
    value = error.value
    if not isinstance(value, Instance):
        return RaisedError(run.shown(value), (run.shown(value),), "", error.place)
    try:
        text = run.text_of(value, error.place)
    except (Raised, Refused):
        text = ""
    message = text.name if isinstance(text, Unknown) else str(text)
    bases = tuple(entry.name for entry in value.cls.mro)
    return RaisedError(value.cls.name, bases, message, error.place)


def _too_many_ways(allowed: int, last: Outcome, file: str) -> Outcome:
    place = last.conditions[-1].place if last.conditions else Place(file, 1)
    refused = NotUnderstood(f"more than {allowed} ways through the code", place)
    return Outcome((), None, None, refused, (), {})
