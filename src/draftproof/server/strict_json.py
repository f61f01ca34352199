"""JSON from clients: what the standard allows and nothing else, nested as deep as anything needs."""

from __future__ import annotations

from typing import Any

import orjson

MOST_LEVELS = 100
"""Containers inside containers. Whatever goes through a value later (the encoder, the template, the grammar's
compiler) manages more than twice as many."""


class JsonFault(ValueError):
    """The text is no JSON that is taken; says why."""


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text: UTF-8, no NaN, no halves of surrogate pairs.

    Raises:
        JsonFault: it is none, or nested too deep.
    """
    try:
        data = text if isinstance(text, bytes) else text.encode()
        value = orjson.loads(data)
    except ValueError as error:
        raise JsonFault(str(error)) from error
    brackets = data.count(b"[") + data.count(b"{")
    # There cannot be more levels than brackets, and few texts have many.
    if brackets > MOST_LEVELS and _is_deeper(value, MOST_LEVELS):
        raise JsonFault(f"nested deeper than {MOST_LEVELS} levels")
    return value


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for container in level
            if isinstance(container, (dict, list))
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
