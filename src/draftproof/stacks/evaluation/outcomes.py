"""What came of a call: one `Outcome` for each way through the code that the unknown values allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.evaluation.values import Instance
from draftproof.stacks.place import Place


@dataclass(frozen=True)
class Condition:
    """Something about an unknown value that this outcome assumes.

    Attributes:
        text: what is assumed, by the names of unknown values: "torch.cuda.is_available()".
        holds: whether it is assumed to be true.
        place: where the code asked for it first.
    """

    text: str
    holds: bool
    place: Place

    def __str__(self) -> str:
        return self.text if self.holds else f"not ({self.text})"


@dataclass(frozen=True)
class Assignment:
    """An attribute was assigned.

    Attributes:
        target: the object; its `label` is its name.
        attribute: the attribute's name.
        value: as it was when assigned; a container may have been changed later.
        place: of the assignment.
    """

    target: Instance
    attribute: str
    value: Value
    place: Place


@dataclass(frozen=True)
class TracedCall:
    """A call of a logger, of a function that the settings name, or of a function that is not known.

    Attributes:
        name: of the function: "logger.warning", "param.weight_loader".
        positional: its arguments.
        keywords: its arguments by name.
        place: of the call.
        is_unknown: it was not carried out, because the function is not known.
    """

    name: str
    positional: tuple[Value, ...]
    keywords: Mapping[str, Value]
    place: Place
    is_unknown: bool = False


@dataclass(frozen=True)
class LogMessage:
    """A line that the code writes to its log.

    Attributes:
        level: "warning", "info", "warning_once" ...
        text: the message; an unknown part stands in braces.
        place: of the call.
    """

    level: str
    text: str
    place: Place


Event = Assignment | TracedCall | LogMessage


@dataclass(frozen=True)
class RaisedError:
    """The call ended with an exception.

    Attributes:
        type_name: name of its class.
        bases: names of all classes that it is an instance of, its own first.
        message: its text; an unknown part stands in braces.
        place: where it was raised.
    """

    type_name: str
    bases: tuple[str, ...]
    message: str
    place: Place

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


@dataclass(frozen=True)
class NotUnderstood:
    """The evaluator gave up on this way: nothing follows about what the code would do.

    Attributes:
        reason: what it did not understand, or which bound was reached.
        place: where.
    """

    reason: str
    place: Place

    def __str__(self) -> str:
        return f"not understood: {self.reason} at {self.place}"


@dataclass(frozen=True)
class Outcome:
    """One way through the called function.

    Attributes:
        conditions: what it assumes about unknown values, in order; empty when everything was known.
        returned: the value, when it returned; None otherwise.
        raised: the exception that left the function; None when it returned.
        not_understood: why nothing can be said; None when the way was followed to its end.
        events: assignments of attributes, log messages and traced calls, in order.
        given: the objects that were handed in, by name, as the call left them.
    """

    conditions: tuple[Condition, ...]
    returned: Value
    raised: RaisedError | None
    not_understood: NotUnderstood | None
    events: tuple[Event, ...]
    given: Mapping[str, Instance]

    @property
    def has_returned(self) -> bool:
        """The function came to its end."""
        return self.raised is None and self.not_understood is None

    @property
    def log(self) -> tuple[LogMessage, ...]:
        """What the code wrote to its log."""
        return tuple(event for event in self.events if isinstance(event, LogMessage))

    @property
    def unknown_calls(self) -> tuple[TracedCall, ...]:
        """Calls that were not carried out because the function is not known."""
        return tuple(event for event in self.events if isinstance(event, TracedCall) and event.is_unknown)

    def calls(self, name: str) -> tuple[TracedCall, ...]:
        """The traced calls of a function, by its last name or its full one."""
        return tuple(
            event
            for event in self.events
            if isinstance(event, TracedCall) and (event.name == name or event.name.endswith("." + name))
        )

    def last_assignment(self, target: str, attribute: str) -> Assignment | None:
        """The last assignment of an attribute of the object of that label."""
        for event in reversed(self.events):
            if (
                isinstance(event, Assignment)
                and event.attribute == attribute
                and event.target.label == target
            ):
                return event
        return None
