"""The output items of a response while its parts come, and the events that tell of them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from draftproof.text.response_parser import (
    ContentDelta,
    ReasoningDelta,
    ResponsePart,
    ToolCallArguments,
    ToolCallBegin,
)

Json = dict[str, Any]
IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"


class OutputItems:
    """Items in the order in which they begin; the last one is open until another begins."""

    def __init__(self) -> None:
        self.items: list[Json] = []

    def push(self, part: ResponsePart) -> list[Json]:
        """Take a part; the events that tell of it."""
        match part:
            case ReasoningDelta():
                return [*self._begin_text("reasoning"), self._text_delta("reasoning_text", part.text)]
            case ContentDelta():
                return [*self._begin_text("message"), self._text_delta("output_text", part.text)]
            case ToolCallBegin():
                call = {"call_id": part.call_id, "name": part.name, "arguments": ""}
                return [*self.finish(), self._begin("function_call", call)]
            case ToolCallArguments():
                item = self.items[-1]
                item["arguments"] += part.text
                return [self._event("function_call_arguments.delta", item, delta=part.text)]

    def finish(self, status: str = COMPLETED) -> list[Json]:
        """Close the open item; the events that tell of it."""
        item = self._open
        if item is None:
            return []
        item["status"] = status
        return [*self._done(item), self._item_event("done", item)]

    @property
    def _open(self) -> Json | None:
        """The item that grows."""
        return self.items[-1] if self.items else None

    def _begin_text(self, kind: str) -> Sequence[Json]:
        """An open item of this kind, with one empty text."""
        if self._open is not None and self._open["type"] == kind:
            return ()
        closing = self.finish()
        if kind == "reasoning":
            added = self._begin(kind, {"summary": [], "content": []})
            part: Json = {"type": "reasoning_text", "text": ""}
        else:
            added = self._begin(kind, {"role": "assistant", "content": []})
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item = self.items[-1]
        item["content"].append(part)
        return [*closing, added, self._event("content_part.added", item, content_index=0, part=dict(part))]

    def _begin(self, kind: str, fields: Json) -> Json:
        item_id = f"{kind}_{secrets.token_hex(12)}"
        item = {"id": item_id, "type": kind, "status": IN_PROGRESS, **fields}
        self.items.append(item)
        shown = item | ({"content": []} if "content" in item else {})
        return self._item_event("added", shown)

    def _text_delta(self, kind: str, text: str) -> Json:
        item = self.items[-1]
        item["content"][0]["text"] += text
        further: Json = {"logprobs": []} if kind == "output_text" else {}
        return self._event(f"{kind}.delta", item, content_index=0, delta=text, **further)

    def _done(self, item: Json) -> list[Json]:
        if item["type"] == "function_call":
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            return [self._event("function_call_arguments.done", item, **arguments)]
        part = item["content"][0]
        further: Json = {"logprobs": []} if part["type"] == "output_text" else {}
        return [
            self._event(f"{part['type']}.done", item, content_index=0, text=part["text"], **further),
            self._event("content_part.done", item, content_index=0, part=part),
        ]

    def _event(self, kind: str, item: Json, **fields: Any) -> Json:
        """Of something inside an item."""
        place = {"item_id": item["id"], "output_index": len(self.items) - 1}
        return {"type": f"response.{kind}", **place, **fields}

    def _item_event(self, kind: str, item: Json) -> Json:
        """Of an item as a whole."""
        return {"type": f"response.output_item.{kind}", "output_index": len(self.items) - 1, "item": item}
