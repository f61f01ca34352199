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
from enum import Enum
from string import whitespace as WHITESPACE

from draftproof.text.output_rules import Thinking
from draftproof.text.reasoning import REASONING_BEGIN, REASONING_END
from draftproof.text.tool_call_reader import ToolCallReader, begins_marker, possible_beginning
from draftproof.text.tool_calls import CALL_BEGIN, CALL_END, FUNCTION_BEGIN, ToolFunction

MOST_NAME_CHARACTERS = 256


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
        texts: dict[type, list[str]] = {ReasoningDelta: [], ContentDelta: []}
        begun: list[ToolCallBegin] = []
        arguments: list[str] = []
        for part in parts:
            if isinstance(part, ToolCallBegin):
                begun.append(part)
                arguments.append("")
            elif isinstance(part, ToolCallArguments):
                arguments[part.index] += part.text
            else:
                texts[type(part)].append(part.text)
        calls = tuple(
            ToolCall(begin.call_id, begin.name, text) for begin, text in zip(begun, arguments, strict=True)
        )
        return cls("".join(texts[ReasoningDelta]), "".join(texts[ContentDelta]), calls)


def fresh_call_id() -> str:
    """An identifier in the form that clients know."""
    return f"call_{secrets.token_hex(12)}"


class _State(Enum):
    BEGIN = "the answer may begin with reasoning"
    REASONING = "in the reasoning"
    CONTENT = "in the answer itself"
    CALL = "in a call"
    CALL_END = "after a function's end"


class ResponseParser:
    """Splits one answer.

    Whitespace around calls and newlines around reasoning belong to the format and are left out. A call that
    was cut off before its function's name is content.

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
        self._functions = {function.name: function for function in functions}
        self._make_call_id = make_call_id
        self._state = _State.CONTENT
        if thinking is not None:
            self._state = _State.REASONING if thinking.begins_open else _State.BEGIN
        self._pending = ""
        self._parts: list[ResponsePart] = []
        self._dropped = ""
        """Characters that are left out before the next text."""
        self._calls = 0
        self._reader: ToolCallReader | None = None
        self._is_final = False
        if self._state is _State.REASONING:
            self._dropped = "\n"

    def push(self, text: str) -> tuple[ResponsePart, ...]:
        """Take more of the answer's text; what it is sure to mean."""
        self._pending += text
        self._parts = []
        steps = {
            _State.BEGIN: self._begin,
            _State.REASONING: self._reasoning,
            _State.CONTENT: self._content,
            _State.CALL: self._call,
            _State.CALL_END: self._call_end,
        }
        while steps[self._state]():
            pass
        return tuple(self._parts)

    def finish(self) -> tuple[ResponsePart, ...]:
        """The answer has ended: what was held back."""
        self._is_final = True
        return self.push("")

    def _begin(self) -> bool:
        text = self._pending.lstrip()
        if text.startswith(REASONING_BEGIN):
            self._pending = text[len(REASONING_BEGIN) :]
            self._state, self._dropped = _State.REASONING, "\n"
            return True
        if begins_marker(text, REASONING_BEGIN) and not self._is_final:
            return False
        self._state = _State.CONTENT
        return True

    def _reasoning(self) -> bool:
        end = self._pending.find(REASONING_END)
        if end >= 0:
            self._take(ReasoningDelta, len(self._pending[:end].rstrip("\n")))
            self._pending = self._pending[self._pending.find(REASONING_END) + len(REASONING_END) :]
            self._state, self._dropped = _State.CONTENT, "\n"
            return True
        held = 0 if self._is_final else possible_beginning(self._pending, REASONING_END)
        self._take(ReasoningDelta, len(self._pending[: len(self._pending) - held].rstrip("\n")))
        return False

    def _content(self) -> bool:
        if not self._functions:
            self._take(ContentDelta, len(self._pending))
            return False
        place = self._pending.find(CALL_BEGIN)
        if place < 0:
            text = self._pending
            if not self._is_final:
                text = text[: len(text) - possible_beginning(text, CALL_BEGIN)].rstrip()
            self._take(ContentDelta, len(text))
            return False
        after = self._pending[place + len(CALL_BEGIN) :].lstrip()
        if begins_marker(after, FUNCTION_BEGIN) and not self._is_final:
            self._take(ContentDelta, len(self._pending[:place].rstrip()))
            return False
        name, closed, rest = after.removeprefix(FUNCTION_BEGIN).partition(">")
        is_name = after.startswith(FUNCTION_BEGIN) and len(name) <= MOST_NAME_CHARACTERS and "\n" not in name
        is_name = is_name and (name != "" or not closed)
        if not is_name or (self._is_final and not closed):
            # No call follows: the tag is text like any other.
            self._take(ContentDelta, place + len(CALL_BEGIN))
            return True
        self._take(ContentDelta, len(self._pending[:place].rstrip()))
        if not closed:
            return False
        self._pending = rest
        self._begin_call(name)
        return True

    def _begin_call(self, name: str) -> None:
        self._parts.append(ToolCallBegin(self._calls, self._make_call_id(), name))
        self._reader = ToolCallReader(self._functions.get(name))
        self._state = _State.CALL

    def _call(self) -> bool:
        assert self._reader is not None
        text, self._pending = self._pending, ""
        fragments = "".join(self._reader.push(text))
        if fragments:
            self._parts.append(ToolCallArguments(self._calls, fragments))
        if self._reader.rest is None:
            return False
        self._pending = self._reader.rest
        self._state = _State.CALL_END
        self._calls += 1
        return True

    def _call_end(self) -> bool:
        text = self._pending.lstrip()
        if begins_marker(text, CALL_END) and not self._is_final:
            return False
        self._pending = text.removeprefix(CALL_END)
        self._state, self._dropped = _State.CONTENT, WHITESPACE
        return True

    def _take(self, kind: type[ReasoningDelta] | type[ContentDelta], count: int) -> None:
        """Move text from what is pending to a part."""
        text, self._pending = self._pending[:count], self._pending[count:]
        text = text.lstrip(self._dropped) if self._dropped else text
        if text:
            self._dropped = ""
            self._parts.append(kind(text))
