"""Builds a head with SGLang's own constructors and loads a checkpoint with SGLang's own loader, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.stacks.built_parameter import BuiltParameter
from draftproof.stacks.classes import ClassSource
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.evaluation.outcomes import LogMessage, Outcome, TracedCall
from draftproof.stacks.evaluation.settings import Named
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import StoredTensor
from draftproof.stacks.sglang.code.argument_defaults import Default
from draftproof.stacks.sglang.code.noticing import LOADER
from draftproof.stacks.sglang.code.surroundings import DRIVER

_OURS = ("AttributeError", "TypeError", "NameError", "UnboundLocalError", "RecursionError")
_SKIP_LEVELS = ("warning", "warning_once", "error", "info", "log_info_on_rank0")


@dataclass(frozen=True)
class HeadSubject:
    """What is built.

    Attributes:
        head: its class.
        config: arguments of the driver's `draft_config`.
        hf_quant_config: content of hf_quant_config.json; None when there is none.
        capability: compute capability times ten.
        defaults: server arguments by name.
        groups: names under which they are grouped.
        quantization: value of `--quantization`; None without it.
    """

    head: ClassSource
    config: tuple[Any, ...]
    hf_quant_config: Mapping[str, Any] | None
    capability: int
    defaults: Mapping[str, Default]
    groups: tuple[str, ...] = ()
    quantization: str | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Of the driver's `build`."""
        return (
            Named(self.head.file, self.head.name),
            Named(LOADER, "_get_quantization_config"),
            Named(LOADER, "_initialize_model"),
            (self.capability, dict(self.defaults), self.quantization, list(self.groups)),
            dict(self.hf_quant_config) if self.hf_quant_config is not None else None,
            *self.config,
        )


@dataclass(frozen=True)
class Failure:
    """What a tensor met that did not land.

    Attributes:
        error: the exception, as text; empty when none was raised.
        log: what was logged about it.
        place: where it was raised or logged; None when neither was.
    """

    error: str = ""
    log: str = ""
    place: Place | None = None

    @property
    def is_ours(self) -> bool:
        """The error may come from what takes the place of torch, not from the stack's own rule."""
        return self.error.startswith(_OURS)


@dataclass(frozen=True)
class LoadedHead:
    """A head after loading.

    Attributes:
        parameters: what became of each.
        failures: for tensors that landed nowhere, what they met; a tensor without an entry met nothing.
        places: lines that every statement about the loading rests on.
    """

    parameters: tuple[BuiltParameter, ...]
    failures: Mapping[str, Failure] = field(default_factory=dict)


def load_head(
    evaluator: Evaluator, subject: HeadSubject, tensors: Sequence[StoredTensor]
) -> Reading[LoadedHead]:
    """Builds, loads, and lets the target share its embedding and output head.

    Where the loader raises, or leaves tensors out, they are loaded one by one as well, to see which.
    """
    looked = f"built {subject.head.name} and loaded {len(tensors)} tensors with SGLang's own rules"
    stored = [(tensor.name, tensor.shape, tensor.dtype) for tensor in tensors]
    outcomes = evaluator.call(DRIVER, "load", stored, *subject.arguments)
    problem = _problem(outcomes)
    if problem is not None:
        return not_understood(f"{looked}; {problem[0]}", problem[1])
    raised = next((outcome.raised for outcome in outcomes if outcome.raised is not None), None)
    if raised is None:
        parameters = _agreed([_parameters(outcome.returned) for outcome in outcomes])
        if parameters is None:
            return not_understood(f"{looked}; it depends on {_conditions(outcomes)}", subject.head.place)
        landed = {name for parameter in parameters for name in parameter.tensors}
        if landed >= {tensor.name for tensor in tensors}:
            return found(LoadedHead(parameters), looked, subject.head.place)
    elif not _raised_by_loading(evaluator, subject):
        return not_understood(f"{looked}; building it raised {raised} at {raised.place}", raised.place)
    singly = _load_singly(evaluator, subject, stored, looked)
    if singly.value is None or raised is not None:
        return singly
    assert parameters is not None
    return found(LoadedHead(parameters, singly.value.failures), looked, subject.head.place)


def _raised_by_loading(evaluator: Evaluator, subject: HeadSubject) -> bool:
    """Building alone, without a tensor, does not raise."""
    outcomes = evaluator.call(DRIVER, "build", *subject.arguments)
    return all(outcome.has_returned for outcome in outcomes)


def _load_singly(
    evaluator: Evaluator, subject: HeadSubject, stored: Sequence[Any], looked: str
) -> Reading[LoadedHead]:
    outcomes = evaluator.call(DRIVER, "load_singly", stored, *subject.arguments)
    problem = _problem(outcomes)
    if problem is not None:
        return not_understood(f"{looked} one by one; {problem[0]}", problem[1])
    raised = next((outcome.raised for outcome in outcomes if outcome.raised is not None), None)
    if raised is not None:
        return not_understood(f"{looked} one by one; it raised {raised}", raised.place)
    parameters = _agreed([_parameters(outcome.returned) for outcome in outcomes])
    if parameters is None:
        return not_understood(f"{looked}; it depends on {_conditions(outcomes)}", subject.head.place)
    errors = outcomes[0].returned[3]
    logs = _logs(outcomes[0])
    failures = {
        name: Failure(
            ": ".join(part for part in errors[name] if part) if name in errors else "",
            logs[name].text if name in logs else "",
            logs[name].place if name in logs else None,
        )
        for name, _, _ in stored
        if name in errors or name in logs
    }
    return found(LoadedHead(parameters, failures), looked, subject.head.place)


def _problem(outcomes: Sequence[Outcome]) -> tuple[str, Place] | None:
    for outcome in outcomes:
        if outcome.not_understood is not None:
            return str(outcome.not_understood), outcome.not_understood.place
    return None


def _agreed(results: Sequence[tuple[BuiltParameter, ...]]) -> tuple[BuiltParameter, ...] | None:
    """What all ways give; None when they differ."""
    return results[0] if results and all(result == results[0] for result in results) else None


def _conditions(outcomes: Sequence[Outcome]) -> str:
    texts = [str(condition) for outcome in outcomes for condition in outcome.conditions]
    return ", ".join(list(dict.fromkeys(texts))[:3]) or "something that is not known"


def _parameters(returned: Any) -> tuple[BuiltParameter, ...]:
    """The driver's (built, loaded, shared) as one list."""
    _, loaded, shared = returned[:3]
    owners = {row[0]: row[5] for row in shared}
    gone = "another module of the target"
    return tuple(
        BuiltParameter(
            name=row[0],
            shape=tuple(row[1]),
            dtype=row[2],
            writes=tuple((write[0], write[1]) for write in row[3]),
            is_filled=row[4] is True,
            owner=str(owners.get(row[0], gone)),
        )
        for row in loaded
    )


def _logs(outcome: Outcome) -> Mapping[str, LogMessage]:
    """The first message that was logged while a tensor was loaded."""
    found_logs: dict[str, LogMessage] = {}
    current = ""
    for event in outcome.events:
        if isinstance(event, TracedCall) and event.name.endswith("mark") and event.positional:
            current = str(event.positional[0])
        elif isinstance(event, LogMessage) and current and event.level in _SKIP_LEVELS:
            found_logs.setdefault(current, event)
    return found_logs
