"""Server-sent events as tests read them."""

from __future__ import annotations

import json
from typing import Any


def events_of(text: str) -> list[Any]:
    """The JSON of each event of a whole stream, which must end with `[DONE]`."""
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    assert events[-1] == "[DONE]", f"the stream ends with {events[-1]!r}"
    return [json.loads(event) for event in events[:-1]]
