"""One request's output as text: detokenized, and watched for stop strings."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.text.detokenizer import Detokenizer
from draftproof.text.stop import StopStrings


class OutputText:
    """The text of one output as its tokens come.

    Args:
        detokenizer: fresh, of this output.
        stops: fresh, of this output.
    """

    def __init__(self, detokenizer: Detokenizer, stops: StopStrings) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._new: list[str] = []
        self._ended = False
        self.matched_stop: str | None = None

    def push(self, token_ids: Sequence[int]) -> int | None:
        """Take new tokens; the index of the one that completes a stop string, if one does."""
        step = self._stops.push([self._detokenizer.push(token_id) for token_id in token_ids])
        self._new.append(step.text)
        if step.match is None:
            return None
        self.matched_stop = step.match.stop
        self._ended = True
        return step.match.piece_index

    def finish(self) -> None:
        """The output has ended: what was held back becomes text, unless a stop string ended it."""
        if self._ended:
            return
        self._ended = True
        self._new.extend((self._stops.finish(), self._detokenizer.finish()))

    def take(self) -> str:
        """Text that is new since the last call."""
        text = "".join(self._new)
        self._new.clear()
        return text
