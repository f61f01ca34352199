"""JSON answers."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


class JsonResponse(Response):
    """An answer encoded by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The content as bytes of JSON."""
        return orjson.dumps(content)
