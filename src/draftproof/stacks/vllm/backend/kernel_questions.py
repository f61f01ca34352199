"""Asks a version's own selectors, through the driver, and reads their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftproof.stacks.evaluation import Evaluator, Outcome, RaisedError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.vllm.backend.kernel_machine import DRIVER

_OWN_GAPS = ("ImportError", "ModuleNotFoundError", "NameError", "AttributeError", "TypeError", "KeyError")
"""Exceptions that tell of a form of the source which the driver does not know."""


@dataclass(frozen=True)
class Answer:
    """What a selector said.

    Attributes:
        value: as the driver returns it; None when the selector refused.
        error: its refusal; None when it did not.
    """

    value: Any
    error: RaisedError | None = None


def ask(evaluator: Evaluator, question: str, *arguments: Any) -> Reading[Answer]:
    """The answer of one of the driver's functions; not understood when ways through it disagree."""
    outcomes = evaluator.call(DRIVER, question, *arguments)
    wanted = f"looked for the selector behind {question.replace('_', ' ')}"
    gap = next((found_gap for outcome in outcomes if (found_gap := _gap(outcome)) is not None), None)
    if gap is not None or not outcomes:
        text, place = gap or ("no way through it", Place(DRIVER, 1))
        return not_understood(f"{wanted}: {text}", *_own(place))
    answers = {
        repr(outcome.returned) if outcome.has_returned else str(outcome.raised) for outcome in outcomes
    }
    if len(answers) > 1:
        conditions = "; ".join(dict.fromkeys(str(c) for o in outcomes for c in o.conditions[:1]))
        return not_understood(f"{wanted}: it depends on {conditions[:300]}")
    outcome = outcomes[0]
    places = tuple(place for message in outcome.log for place in _own(message.place))[-1:]
    if outcome.raised is not None:
        return found(Answer(None, outcome.raised), str(outcome.raised), *_own(outcome.raised.place))
    return found(Answer(outcome.returned), repr(outcome.returned), *places)


def name_of(reading: Reading[Answer]) -> Reading[str]:
    """The name that an answer holds; absent when the selector refused."""
    if reading.value is None:
        return not_understood(reading.sentence, *reading.places)
    if reading.value.error is not None:
        return absent(str(reading.value.error), *reading.places)
    value = reading.value.value
    name = value[0] if isinstance(value, list) else value
    return found(str(name), str(name), *reading.places)


def _gap(outcome: Outcome) -> tuple[str, Place] | None:
    if outcome.not_understood is not None:
        return outcome.not_understood.reason, outcome.not_understood.place
    raised = outcome.raised
    if raised is not None and (raised.type_name in _OWN_GAPS or not _own(raised.place)):
        return str(raised), raised.place
    return None


def _own(place: Place) -> tuple[Place, ...]:
    return () if place.file.startswith("draftproof") or place.line < 1 else (place,)
