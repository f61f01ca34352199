"""An answer's text as what it means: reasoning, content and calls of functions, while it comes.

    parser = ResponseParser(functions, thinking)
    for text in texts:
        for part in parser.push(text): ...
    for part in parser.finish(): ...

The parts of a kind add up to the same, and come in the same order, however the text is cut.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from draftproof.text.output_rules import Thinking
from draftproof.text.tool_calls import ToolFunction


@dataclass(frozen=True)
class ReasoningDelta:
    """More reasoning; newlines around it are left out.

    Attributes:
        text: never empty.
    """

    text: str


@dataclass(frozen=True)
class ContentDelta:
    """More of the answer itself.

    Attributes:
        text: never empty.
    """

    text: str


@dataclass(frozen=True)
class ToolCallBegin:
    """A function is called.

    Attributes:
        index: 0 for the first call of the answer.
        call_id: made up here, unique.
        name: as the model wrote it; nobody may have offered it.
    """

    index: int
    call_id: str
    name: str


@dataclass(frozen=True)
class ToolCallArguments:
    """More of a call's arguments.

    Attributes:
        index: of the call.
        text: a piece of JSON. All pieces of a whole call are one JSON object; those of a call that was cut
            off are not, so that nobody carries it out.
    """

    index: int
    text: str


ResponsePart = ReasoningDelta | ContentDelta | ToolCallBegin | ToolCallArguments


@dataclass(frozen=True)
class ToolCall:
    """A call as a whole.

    Attributes:
        call_id: unique.
        name: of the function.
        arguments: JSON text of an object; not valid when the call was cut off.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ParsedResponse:
    """An answer as a whole.

    Attributes:
        reasoning: empty when there was none.
        content: empty when there was none.
        calls: in the order of the text.
    """

    reasoning: str
    content: str
    calls: tuple[ToolCall, ...]

    @classmethod
    def of(cls, parts: Iterable[ResponsePart]) -> ParsedResponse:
        """Put parts together."""
        raise NotImplementedError


def fresh_call_id() -> str:
    """An identifier in the form that clients know."""
    return f"call_{secrets.token_hex(12)}"


class ResponseParser:
    """Splits one answer.

    Args:
        functions: that may be called; without any, what looks like a call is content.
        thinking: None when nothing is reasoning; else whether the answer begins inside it (otherwise it may
            begin with ``<think>``).
        make_call_id: names calls.
    """

    def __init__(
        self,
        functions: Sequence[ToolFunction] = (),
        thinking: Thinking | None = None,
        make_call_id: Callable[[], str] = fresh_call_id,
    ) -> None:
        raise NotImplementedError

    def push(self, text: str) -> tuple[ResponsePart, ...]:
        """Take more of the answer's text; what it is sure to mean."""
        raise NotImplementedError

    def finish(self) -> tuple[ResponsePart, ...]:
        """The answer has ended: what was held back."""
        raise NotImplementedError
