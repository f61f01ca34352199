"""JSON from outside, read within limits: values, depth, no duplicate keys, no numbers that are none."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn


class JsonProblem(ValueError):
    """The text is no JSON, or exceeds a limit. Callers turn it into an error that names the file."""


@dataclass(frozen=True)
class JsonLimits:
    """What is accepted.

    Attributes:
        values: containers and commas, an upper bound of the number of values.
        depth: containers inside containers; None when the caller checks every value itself.
    """

    values: int
    depth: int | None


def parse_object(data: bytes, limits: JsonLimits) -> dict[str, Any]:
    """Parses a JSON text whose top level is an object.

    The number of values is bounded before anything is built, so that a small hostile file cannot fill the
    memory: brackets and commas are counted wherever they stand, even in strings.

    Raises:
        JsonProblem: says what is wrong and, if it is known, where.
    """
    if not data.strip():
        raise JsonProblem("the file is empty")
    if data.count(b",") + data.count(b"[") + data.count(b"{") > limits.values:
        raise JsonProblem(f"more than {limits.values} values")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonProblem(f"no UTF-8 at byte {error.start}") from error
    try:
        content = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError as error:
        raise JsonProblem("nested deeper than any such file") from error
    except json.JSONDecodeError as error:
        raise JsonProblem(f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except JsonProblem:
        raise
    except ValueError as error:
        # int() refuses thousands of digits.
        raise JsonProblem("a number has too many digits") from error
    if not isinstance(content, dict):
        raise JsonProblem("the top level is no object")
    if limits.depth is not None:
        _check_depth(content, limits.depth)
    return content


def shown_value(value: Any) -> str:
    """A parsed value, short enough for a message; containers by their size only."""
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    # Python itself refuses to print integers of thousands of digits.
    if isinstance(value, int) and abs(value) >= 10**40:
        return "an integer of more than 40 digits"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonProblem(f"key {key!r} appears twice in one object")
            seen.add(key)
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise JsonProblem(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonProblem(f"the number {text[:40]} is too large")
    return value


def _check_depth(content: dict[str, Any], limit: int) -> None:
    level: list[Any] = [content]
    for _ in range(limit + 1):
        level = [
            value
            for container in level
            for value in (container.values() if isinstance(container, dict) else container)
            if isinstance(value, (dict, list))
        ]
        if not level:
            return
    raise JsonProblem(f"nested deeper than {limit} levels")
