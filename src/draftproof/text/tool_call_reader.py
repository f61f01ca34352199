"""One call of a function, read while it comes: from its parameters to JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from draftproof.text.tool_calls import (
    CALL_END,
    FUNCTION_END,
    PARAMETER_BEGIN,
    PARAMETER_END,
    ToolFunction,
    argument_json,
    is_text,
)

_AFTER_VALUE = (PARAMETER_BEGIN, FUNCTION_END, CALL_END)
"""One of these follows the end of a value; elsewhere in a value its end tag is text."""


def begins_marker(text: str, marker: str) -> bool:
    """Whether a text is a beginning of a marker, and not all of it."""
    return len(text) < len(marker) and marker.startswith(text)


def possible_beginning(text: str, marker: str) -> int:
    """Length of the longest end of a text that is the beginning, but not the whole, of a marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0


class ToolCallReader:
    """Reads the text after ``<function=NAME>`` up to the end of the function.

    Values that can only be texts come out as they come in; the type of all others is known at their end.

    Args:
        function: that is called; None when nobody offered it, and all its values are texts.
    """

    def __init__(self, function: ToolFunction | None) -> None:
        self._function = function
        self._pending = ""
        self._fragments: list[str] = []
        self._is_open = False
        self._parameters = 0
        self._types: frozenset[str] | None = None
        """Of the value that is being read; None between parameters."""
        self._value: list[str] = []
        self._begins_value = False
        self.rest: str | None = None
        """Text after the function's end; None until there is one."""

    def push(self, text: str) -> Sequence[str]:
        """Take more text; the pieces of JSON that it makes. Nothing may be pushed after the end."""
        self._pending += text
        # At once, so that a call that is cut off here does not pass for one without arguments.
        self._fragments = [] if self._is_open else ["{"]
        self._is_open = True
        while self.rest is None and self._step():
            pass
        return self._fragments

    def _step(self) -> bool:
        """Read one thing; False when more text is needed."""
        return self._between_parameters() if self._types is None else self._in_value(self._types)

    def _between_parameters(self) -> bool:
        begin, marker = _first_of(self._pending, _AFTER_VALUE)
        if marker is None:
            return False
        if marker != PARAMETER_BEGIN:
            self._fragments.append("}")
            # A call that ends without its function's end is whole too; what ends it is read by the caller.
            self.rest = self._pending[begin + len(FUNCTION_END) if marker == FUNCTION_END else begin :]
            return True
        end = self._pending.find(">", begin)
        if end < 0:
            return False
        name = self._pending[begin + len(PARAMETER_BEGIN) : end]
        self._pending = self._pending[end + 1 :]
        self._types = frozenset() if self._function is None else self._function.value_types(name)
        self._fragments.append(f"{', ' if self._parameters else ''}{json.dumps(name, ensure_ascii=False)}: ")
        if is_text(self._types):
            self._fragments.append('"')
        self._parameters += 1
        self._begins_value = True
        return True

    def _in_value(self, types: frozenset[str]) -> bool:
        if self._begins_value:
            if not self._pending:
                return False
            self._pending = self._pending.removeprefix("\n")
            self._begins_value = False
        end = self._pending.find(PARAMETER_END)
        if end < 0:
            held = possible_beginning(self._pending, "\n" + PARAMETER_END) or possible_beginning(
                self._pending, PARAMETER_END
            )
            self._take_value(len(self._pending) - held, types)
            return False
        value_end = end - self._pending[:end].endswith("\n")
        after = end + len(PARAMETER_END)
        following = self._pending[after:].lstrip()
        if any(following.startswith(marker) for marker in _AFTER_VALUE):
            self._take_value(value_end, types)
            self._pending = following
            self._end_value(types)
            return True
        if any(begins_marker(following, marker) for marker in _AFTER_VALUE):
            self._take_value(value_end, types)
            return False
        self._take_value(after, types)
        return True

    def _take_value(self, count: int, types: frozenset[str]) -> None:
        """Move text from what is pending to the value."""
        text, self._pending = self._pending[:count], self._pending[count:]
        if is_text(types):
            if text:
                self._fragments.append(json.dumps(text, ensure_ascii=False)[1:-1])
        else:
            self._value.append(text)

    def _end_value(self, types: frozenset[str]) -> None:
        self._fragments.append('"' if is_text(types) else argument_json("".join(self._value), types))
        self._value.clear()
        self._types = None


def _first_of(text: str, markers: Sequence[str]) -> tuple[int, str | None]:
    """The marker that comes first in a text, and where."""
    found = [(place, marker) for marker in markers if (place := text.find(marker)) >= 0]
    return min(found) if found else (-1, None)
