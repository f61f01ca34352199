"""What SGLang makes of a command: its own resolution of the arguments, carried out on the values at hand.

Two forms are known: `ServerArgs.__post_init__` that calls one handler after the other, and a function
`run_resolution_pipeline` that declares decisions beside the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from draftproof.hardware.gpu import Gpu
from draftproof.stacks.evaluation import (
    Evaluator,
    Given,
    Instance,
    LogMessage,
    Missing,
    Outcome,
    RaisedError,
    Settings,
    Unknown,
    single,
)
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch.argument_record import (
    CLASS,
    RECORD,
    default_values,
    field_answers,
    record,
)
from draftproof.stacks.sglang.launch.declared_places import declared_place
from draftproof.stacks.sglang.launch.model_view import MODEL_CONFIG, checked_model, model_view
from draftproof.stacks.sglang.launch.options import SERVER_ARGS, ArgumentTable
from draftproof.stacks.sglang.pretended_machine import answers, machine
from draftproof.stacks.source import SourceTree

PIPELINE = "sglang/srt/arg_groups/pipeline.py"
PIPELINE_FUNCTION = "run_resolution_pipeline"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"
OVERRIDE_FOLDER = "sglang/srt/arg_groups/model_overrides"
INITIALISER = f"{CLASS}.__post_init__"
_DECLARED = "_resolved_overrides"
_WAYS = 12
_FILES = re.compile(r"\(*(bool\()?(os\.path|glob|pathlib)\.")
"""Questions about files of the model's folder."""
_MISSING_CLASS = re.compile(r"transformers\.\w+ is None")
_SPECIAL_MODEL = re.compile(r"model_config\.is_\w+")
"""Models of other kinds (embedding, encoder-decoder, ...) have handlers of their own."""
_OURS = frozenset(("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "KeyError"))
"""Errors that say more about the objects put in place of a machine and a model than about the command."""
_MODEL_CONFIG_SOURCES = (
    "sglang.srt.arg_groups.model_override_base.model_config_of",
    "sglang.srt.server_args.ServerArgs.get_model_config",
)
_HUB = ("sglang.srt.utils.hf_transformers_utils", "sglang.srt.utils.hf_transformers.common")
_NO_MISTRAL = (
    "sglang.srt.arg_groups.model_path_hook.is_mistral_native_format",
    "sglang.srt.server_args.ServerArgs._is_mistral_native_format",
)
_NO_OTHER_FORMAT = {"check_gguf_file": False, "resolve_hf_gguf_reference": None}
"""Questions about files of another format than safetensors, answered without a look at a disk or the hub."""


@dataclass(frozen=True)
class InForce:
    """A field's value after resolution.

    Attributes:
        value: Python's own value, or an `Unknown`.
        place: where the resolution last set it; None when it did not.
    """

    value: Any
    place: Place | None = None


@dataclass(frozen=True)
class Resolution:
    """The end of a resolution.

    Attributes:
        before: values as given or by default.
        after: values in force, also when an error ended the resolution half-way.
        raised: the error that stops the start; None when the resolution came to its end.
        lost: what was not understood, or on what the outcome depends; empty when it was followed to its end.
        place: where it got lost.
        log: what it writes.
        conditions: assumptions about the machine.
    """

    before: Mapping[str, Any]
    after: Mapping[str, InForce]
    raised: RaisedError | None
    lost: str
    place: Place | None
    log: tuple[LogMessage, ...]
    conditions: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """It was followed to its end, and nothing stopped it."""
        return self.raised is None and not self.lost

    def value(self, field: str) -> Any:
        """A value in force; None when the version has no such field, or it is not known."""
        found = self.after.get(field)
        return None if found is None or isinstance(found.value, Unknown) else found.value

    def places(self, field: str) -> tuple[Place, ...]:
        """Where a field was set."""
        found = self.after.get(field)
        return () if found is None or found.place is None else (found.place,)


@lru_cache(maxsize=4)
def _evaluator(tree: SourceTree) -> Evaluator:
    """One for all questions about a tree: what it has read and compiled is kept."""
    return Evaluator(tree)


class Resolver:
    """Carries out a version's resolution, as often as asked; what was compiled is kept.

    Args:
        tree: the source, perhaps a view that notes what is read.
        arguments: its declarations.
        checkpoint: the model.
        shared: the tree that compiled code is kept for; the same source as `tree`.
    """

    def __init__(
        self,
        tree: SourceTree,
        arguments: ArgumentTable,
        checkpoint: ServedCheckpoint,
        shared: SourceTree | None = None,
    ) -> None:
        self._tree = tree
        self._arguments = arguments
        self._checkpoint = checkpoint
        self._defaults = default_values(tree, arguments)
        self._evaluator = _evaluator(shared or tree)
        self._has_own_class = not tree.has(PIPELINE)
        self._registering = _registering(tree, checkpoint.architecture)

    def resolve(self, values: Mapping[str, Any], environment: Mapping[str, str], gpu: Gpu) -> Resolution:
        """What becomes of a command.

        Args:
            values: what the command sets, by field.
            environment: variables that the command sets.
            gpu: every GPU of the machine.
        """
        before = {"model_path": self._checkpoint.name, **self._defaults, **values}
        if not self._checkpoint.architecture:
            state = {name: InForce(value) for name, value in before.items()}
            return Resolution(before, state, None, "config.json names no architecture", None, ())
        evaluator = self._prepared(environment, gpu)
        subject = record(before, self._has_own_class)
        if self._has_own_class:
            outcomes = evaluator.call(SERVER_ARGS, INITIALISER, subject)
        else:
            outcomes = evaluator.call(PIPELINE, PIPELINE_FUNCTION, subject)
        self._note()
        return _combined(self._tree, before, outcomes)

    def _note(self) -> None:
        """Everything that was read for any question so far counts as read for this one."""
        for dotted in self._evaluator.consulted:
            path = dotted.replace(".", "/")
            for file in (f"{path}/__init__.py", f"{path}.py"):
                if self._tree.has(file):
                    self._tree.digest(file)
                    break

    def model_check(
        self,
        method: str,
        attributes: Mapping[str, Any],
        environment: Mapping[str, str],
        gpu: Gpu,
        *given: Any,
    ) -> Outcome | None:
        """One of the checks that the version's `ModelConfig` makes of the checkpoint; None when it got lost.

        Args:
            method: its name in the class.
            attributes: of the object, besides the checkpoint's own.
            environment: variables that the command sets.
            gpu: every GPU of the machine.
            given: arguments of the method.
        """
        subject = checked_model(self._checkpoint, attributes)
        return self.carried_out(MODEL_CONFIG, f"ModelConfig.{method}", environment, gpu, subject, *given)

    def carried_out(
        self, file: str, name: str, environment: Mapping[str, str], gpu: Gpu, *given: Any
    ) -> Outcome | None:
        """A function of the version outside of its resolution; None when it got lost.

        Args:
            file: path in the tree.
            name: "function" or "Class.method".
            environment: variables that the command sets.
            gpu: every GPU of the machine.
            given: arguments.
        """
        settings = Settings(paths=2, environment=dict(environment), decide=_decide, labels_traced=frozenset())
        evaluator = self._evaluator.sharing(machine(gpu), settings)
        outcome = single(evaluator.call(file, name, *given))
        self._note()
        if outcome is None or (outcome.raised is not None and outcome.raised.type_name in _OURS):
            return None
        return outcome

    def _prepared(self, environment: Mapping[str, str], gpu: Gpu) -> Evaluator:
        settings = Settings(
            paths=_WAYS,
            environment=dict(environment),
            decide=_decide,
            labels_traced=frozenset({RECORD}),
            registering=self._registering,
        )
        substitutes = machine(gpu)
        model = model_view(
            self._evaluator.sharing(substitutes, replace(settings, registering=())), self._checkpoint
        )
        substitutes |= {name: answers(model) for name in _MODEL_CONFIG_SOURCES}
        substitutes |= {name: answers(False) for name in _NO_MISTRAL}
        for module in _HUB:
            substitutes |= {f"{module}.{name}": answers(answer) for name, answer in _NO_OTHER_FORMAT.items()}
            substitutes[f"{module}.get_config"] = answers(model.attributes["hf_config"])
        if not self._has_own_class:
            substitutes |= field_answers(self._arguments)
            context = Given("context", {"server_args": None}, missing=Missing.UNKNOWN)
            substitutes["sglang.srt.runtime_context.get_context"] = answers(context)
        return self._evaluator.sharing(substitutes, settings)


def _registering(tree: SourceTree, architecture: str) -> tuple[str, ...]:
    """The modules that register rules for an architecture, and those for no architecture in particular."""
    if not tree.has(OVERRIDES):
        return ()
    own = tree.containing(OVERRIDE_FOLDER, architecture) if architecture else ()
    return tuple(file.removesuffix(".py").replace("/", ".") for file in (*own, OVERRIDES))


def _decide(text: str, place: Place) -> bool | None:
    """Everything is installed, torch is built for CUDA, and the model is an ordinary one in safetensors."""
    if text.startswith(("import ", "callable(", "(callable(")) or text == "hasattr(torch, 'cuda')":
        return True
    if text.startswith("hasattr(torch, '") or _FILES.match(text) or _MISSING_CLASS.fullmatch(text):
        return False
    if text.startswith("model_config."):
        if text.endswith(" is None"):
            return True
        return False if _SPECIAL_MODEL.fullmatch(text) else None
    return None


def _combined(tree: SourceTree, before: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Resolution:
    """One answer from all ways: what they agree on holds, the rest is not known."""
    refused = next((outcome for outcome in outcomes if outcome.not_understood is not None), None)
    ways = [outcome for outcome in outcomes if outcome.not_understood is None] or list(outcomes)
    first = ways[0]
    lost, place = "", None
    if refused is not None and refused.not_understood is not None:
        lost, place = refused.not_understood.reason, refused.not_understood.place
    elif {outcome.has_returned for outcome in ways} == {True, False}:
        stopped = next(outcome for outcome in ways if outcome.raised is not None)
        lost = f"whether it stops depends on {' and '.join(map(str, stopped.conditions[-3:]))}"
        place = stopped.raised.place if stopped.raised is not None else None
    elif first.raised is not None and first.raised.type_name in _OURS:
        lost, place = f"{first.raised} (in the pretended surroundings)", first.raised.place
    states = [_state(tree, outcome) for outcome in ways]
    after = {
        name: state if all(_same(state, other.get(name)) for other in states[1:]) else _varying(name, state)
        for name, state in states[0].items()
    }
    return Resolution(
        before=before,
        after=after,
        raised=None if lost else first.raised,
        lost=lost,
        place=place,
        log=first.log,
        conditions=tuple(str(condition) for condition in first.conditions),
    )


def _same(state: InForce, other: InForce | None) -> bool:
    if other is None or isinstance(state.value, (Instance, Unknown)):
        return other is not None and type(state.value) is type(other.value)
    return type(state.value) is type(other.value) and bool(state.value == other.value)


def _varying(name: str, state: InForce) -> InForce:
    return InForce(Unknown(f"{RECORD}.{name}"), state.place)


def _state(tree: SourceTree, outcome: Outcome) -> dict[str, InForce]:
    subject = outcome.given.get(RECORD)
    if subject is None:
        return {}
    state = {
        name: InForce(value, subject.place_of(name))
        for name, value in subject.attributes.items()
        if not name.startswith("_")
    }
    declared = subject.attributes.get(_DECLARED)
    for entry in declared if isinstance(declared, list) else ():
        source, fields = entry
        for name, value in fields.items():
            if isinstance(name, str):
                state[name] = InForce(value, declared_place(tree, source, name))
    return state
