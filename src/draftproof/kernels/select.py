"""The kernels of a device step: for each op one callable, chosen once, at start, by capability.

On a CPU every op is its definition (`reference`). On a GPU the tuning table of its compute capability names
the backends of an op in order of preference, by rows and weight format; the first one that can carry out a
call does. A backend that the table prefers and that cannot (not installed, or its `supports` gives a reason)
is a *demotion*: it is noted, counted and shown; when nothing is left, the call is an error and never the
reference.

A backend module `kernels/<package>/<backend>.py` holds functions with the op's name and signature, and
optionally `supports_<op>` (or `supports`), which takes the same arguments and returns a reason against it, or
None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from draftproof.errors import UnsupportedRequest
from draftproof.kernels.backend_rules import PACKAGES, Backend, BackendRule, TuningTable, load_table

Operation = Callable[..., Any]


@dataclass(frozen=True)
class StepKernels:
    """One callable for each op of a device step, with the signature of the op's reference.

    Attributes:
        experts_of_prompt: no op of a step, but chosen like one: a prompt's experts.
        report: how they were chosen.
    """

    packed_linear: Operation
    route: Operation
    experts_step: Operation
    experts_of_prompt: Operation
    gated_delta_decode: Operation
    decode_attention: Operation
    decode_attention_selected: Operation
    embed_inputs: Operation
    enter_head: Operation
    enter_chain: Operation
    last_rows: Operation
    sample_rows: Operation
    sample_drafts: Operation
    advance: Operation
    sample_and_advance: Operation
    report: SelectionReport


@dataclass(frozen=True)
class Demotion:
    """A backend that was preferred and could not be used.

    Attributes:
        op: which operation.
        backend: what the table asked for.
        reason: why not, in words.
    """

    op: str
    backend: Backend
    reason: str


@dataclass
class DemotionLog:
    """Demotions as they happen, each kind once, with its number of calls."""

    counts: Counter[Demotion] = field(default_factory=Counter)
    tell: Callable[[str], None] | None = None

    def note(self, demotion: Demotion) -> None:
        """Count a demotion; the first of its kind is told."""
        self.counts[demotion] += 1
        if self.counts[demotion] == 1 and self.tell is not None:
            self.tell(f"kernel {demotion.op}: {demotion.backend.value} demoted: {demotion.reason}")


@dataclass(frozen=True)
class SelectionReport:
    """What was chosen and why; `doctor` and `bench` print it.

    Attributes:
        place: "cpu", or the compute capability in words: "SM90".
        table: name of the tuning table; empty on a CPU.
        tested: where the table's choices were measured; empty when nowhere.
        rules: by op, the backends in order of preference.
        demotions: what could not be used, counted.
    """

    place: str
    table: str
    tested: str
    rules: Mapping[str, tuple[BackendRule, ...]]
    demotions: DemotionLog


def kernels_for(
    device: torch.device,
    overrides: Mapping[str, Backend] | None = None,
    tell: Callable[[str], None] | None = None,
) -> StepKernels:
    """Choose the kernels for a device.

    Args:
        device: where the step runs.
        overrides: backends that are asked for by name, by op; nothing else is tried for these ops.
        tell: gets one line for every kind of demotion.

    Raises:
        UnsupportedRequest: a backend that was asked for by name cannot be imported.
    """
    asked = dict(overrides or {})
    log = DemotionLog(tell=tell)
    if device.type != "cuda":
        table = TuningTable("", "", {op: (BackendRule(Backend.REFERENCE),) for op in PACKAGES})
        place = device.type
    else:
        major, minor = torch.cuda.get_device_capability(device)
        table, place = load_table(major * 10 + minor), f"SM{major}{minor}"
    rules = {op: (BackendRule(asked[op]),) if op in asked else table.of(op) for op in PACKAGES}
    report = SelectionReport(place, table.name, table.tested, rules, log)
    return StepKernels(
        **{op: operation(op, rules[op], op in asked, place, log) for op in _operations()}, report=report
    )


def _operations() -> Sequence[str]:
    return [each.name for each in fields(StepKernels) if each.name != "report"]


@dataclass(frozen=True)
class _Candidate:
    rule: BackendRule
    function: Operation
    supports: Callable[..., str | None] | None


class _Dispatch:
    """An op with more than one candidate, or one that can refuse a call."""

    def __init__(self, op: str, place: str, candidates: Sequence[_Candidate], log: DemotionLog) -> None:
        self._op = op
        self._place = place
        self._candidates = tuple(candidates)
        self._log = log

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        rows, weight_format = _rows_and_format(arguments, named)
        reasons = []
        for candidate in self._candidates:
            if not candidate.rule.holds(rows, weight_format):
                continue
            reason = candidate.supports(*arguments, **named) if candidate.supports else None
            if reason is None:
                return candidate.function(*arguments, **named)
            backend = candidate.rule.backend
            self._log.note(Demotion(self._op, backend, reason))
            reasons.append(f"{backend.value}: {reason}")
        raise _nothing_left(self._op, self._place, rows, weight_format, reasons)


def operation(op: str, rules: Sequence[BackendRule], asked: bool, place: str, log: DemotionLog) -> Operation:
    """One op from its rules.

    Args:
        op: its name.
        rules: backends in order of preference.
        asked: they were asked for by name, so one that is not there is an error.
        place: what runs it, for messages.
        log: gets the demotions.
    """
    candidates = []
    for rule in rules:
        name = f"draftproof.kernels.{PACKAGES[op]}.{rule.backend.value}"
        try:
            module = import_module(name)
        except ImportError as error:
            if asked:
                raise UnsupportedRequest(
                    f"kernel {op}: {rule.backend.value} was asked for: {error}"
                ) from error
            log.note(Demotion(op, rule.backend, str(error)))
            continue
        candidates.append(_Candidate(rule, getattr(module, op), _supports(module, op)))
    if len(candidates) == 1 and candidates[0].supports is None and candidates[0].rule.is_for_all_rows:
        return candidates[0].function
    return _Dispatch(op, place, candidates, log)


def _supports(module: ModuleType, op: str) -> Callable[..., str | None] | None:
    found: Callable[..., str | None] | None = getattr(module, f"supports_{op}", None)
    return found or getattr(module, "supports", None)


def _rows_and_format(arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[int, str | None]:
    """Rows of a call (of its first tensor) and the format of its weights, where it has any."""
    values = (*arguments, *named.values())
    rows = next((value.shape[0] for value in values if isinstance(value, torch.Tensor)), 0)
    formats = (getattr(value, "format", None) for value in values)
    return rows, next((each.value for each in formats if each is not None), None)


def _nothing_left(
    op: str, place: str, rows: int, weight_format: str | None, reasons: Sequence[str]
) -> UnsupportedRequest:
    weights = f" with {weight_format} weights" if weight_format else ""
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return UnsupportedRequest(
        f"no kernel for {op} of {rows} rows{weights} on {place}{why}",
        "`draftproof doctor` shows which kernels there are for this GPU.",
    )
