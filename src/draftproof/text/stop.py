"""Stop strings: finding them in streamed text and never showing the beginning of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StopMatch:
    """A stop string that was found.

    Attributes:
        stop: the stop string.
        piece_index: which of the pushed pieces completed it.
    """

    stop: str
    piece_index: int


@dataclass(frozen=True)
class StopStep:
    """What pushed pieces amount to.

    Attributes:
        text: text that can be shown now: no stop string can begin in it. After a match, the last text of the
            output.
        match: None while the output goes on.
    """

    text: str
    match: StopMatch | None


class StopStrings:
    """Looks for stop strings in one output.

    The output ends at the first character that completes a stop string, and its text ends where that stop
    string begins; of several that the same character completes, the longest counts. So the result is the same
    however the text is cut into pieces.

    Args:
        stops: the stop strings, none of them empty; there may be none.
        min_pieces: a stop string counts only when a piece after this many completes it (one piece a token
            makes this `min_tokens`).
    """

    def __init__(self, stops: Sequence[str], min_pieces: int = 0) -> None:
        self._stops = tuple(sorted(stops, key=len, reverse=True))
        self._min_pieces = min_pieces
        self._pieces = 0
        self._held = ""

    def push(self, pieces: Sequence[str]) -> StopStep:
        """Take the texts of the next tokens, in order; nothing may be pushed after a match."""
        if not self._stops:
            return StopStep("".join(pieces), None)
        shown: list[str] = []
        for index, piece in enumerate(pieces):
            self._pieces += 1
            text = self._held + piece
            found = self._first_match(text) if piece and self._pieces > self._min_pieces else None
            if found is not None:
                stop, begin = found
                self._held = ""
                return StopStep("".join([*shown, text[:begin]]), StopMatch(stop, index))
            split = len(text) - self._possible_beginning(text)
            shown.append(text[:split])
            self._held = text[split:]
        return StopStep("".join(shown), None)

    def finish(self) -> str:
        """The output ended otherwise: the text that was held back."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[str, int] | None:
        """The stop string that new text completes first, and where it begins; the longest of several."""
        best: tuple[int, str] | None = None
        for stop in self._stops:
            # It must end after what was held: everything before was looked at when it came.
            begin = text.find(stop, max(len(self._held) + 1 - len(stop), 0))
            end = begin + len(stop)
            if begin >= 0 and (best is None or end < best[0]):
                best = end, stop
        return None if best is None else (best[1], best[0] - len(best[1]))

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest end of the text that is the beginning, but not the whole, of a stop
        string."""
        for length in range(min(len(text), len(self._stops[0]) - 1), 0, -1):
            tail = text[-length:]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
