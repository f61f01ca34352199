"""What a command asks of vLLM's speculative decoding: one set of keys, however it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.stacks.command.binding import BoundCommand, BoundFlag
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.vllm.launch.option_values import json_problem

CONFIG = "--speculative-config"
SHORT = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}


@dataclass(frozen=True)
class SpeculativeRequest:
    """The keys that the command gives.

    Attributes:
        is_given: the command asks for speculation.
        is_readable: every part of it could be read; else `values` is incomplete, and a finding says why.
        values: key to value, as the engine gets them ("-" in a key is "_").
        words: the words that give them, for messages.
        findings: what is wrong with the way it is written.
    """

    is_given: bool
    is_readable: bool
    values: Mapping[str, Any]
    words: str
    findings: tuple[LaunchFinding, ...] = ()


@dataclass
class _Collected:
    whole: dict[str, Any] | None = None
    dotted: dict[str, Any] = field(default_factory=dict)
    short: dict[str, tuple[BoundFlag, Any]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    is_readable: bool = True


def speculative_request(bound: BoundCommand) -> SpeculativeRequest:
    """The speculative configuration that a command asks for."""
    collected = _Collected()
    for flag in bound.flags:
        if flag.option is not None:
            _collect(collected, flag, flag.option.name)
    values = dict(collected.dotted or collected.whole or {})
    findings = tuple(_mixed(collected, bound))
    for key, (_, value) in collected.short.items():
        values.setdefault(key, value)
    is_given = bool(values) or collected.whole is not None or not collected.is_readable
    return SpeculativeRequest(is_given, collected.is_readable, values, " ".join(collected.words), findings)


def _collect(collected: _Collected, flag: BoundFlag, name: str) -> None:
    if name == CONFIG and flag.flag.path:
        collected.words.append(str(flag.flag))
        _put(collected.dotted, flag.flag.path, _plain_value(flag.flag.value or ""))
    elif name == CONFIG:
        collected.words.append(str(flag.flag))
        text = flag.flag.value or ""
        if text in ("", "None"):
            return
        if json_problem(text):
            collected.is_readable = False
        else:
            collected.whole = {key.replace("-", "_"): value for key, value in json.loads(text).items()}
    elif name in SHORT and flag.flag.value not in (None, "", "None"):
        collected.words.append(str(flag.flag))
        value = flag.flag.value or ""
        is_number = name == "--spec-tokens" and value.lstrip("-").isdigit()
        collected.short[SHORT[name]] = (flag, int(value) if is_number else value)


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *outer, last = (part.replace("-", "_") for part in path)
    for key in outer:
        inner = target.setdefault(key, {})
        target = inner if isinstance(inner, dict) else {}
    if last.endswith("+"):
        existing = target.get(last[:-1])
        items = value if isinstance(value, list) else str(value).split(",")
        target[last[:-1]] = [*(existing if isinstance(existing, list) else []), *items]
    else:
        target[last] = value


def _plain_value(text: str) -> Any:
    """A dotted option's value: JSON where it is JSON, else the word itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _mixed(collected: _Collected, bound: BoundCommand) -> Iterator[LaunchFinding]:
    """Ways of giving a key that exclude each other."""
    config = next(
        (f.option.place for f in bound.flags if f.option is not None and f.option.name == CONFIG), None
    )
    places: tuple[Place, ...] = (config,) if config is not None else ()
    if collected.whole is not None and collected.dotted:
        yield LaunchFinding(
            "speculative-given-once",
            " ".join(collected.words),
            Ruling.BREAKS,
            f"{CONFIG} is given in one way.",
            "either one JSON object or options with dots",
            f"both; the options with dots become an object of their own, which replaces the JSON "
            f"({json.dumps(collected.whole)})",
            f"put everything into one {CONFIG} '{{...}}'",
            places,
        )
    given = collected.dotted or collected.whole or {}
    for key, (flag, _) in collected.short.items():
        if key in given:
            place = (flag.option.place,) if flag.option is not None else ()
            yield LaunchFinding(
                "speculative-given-once",
                str(flag.flag),
                Ruling.BREAKS,
                f"{key} is given once.",
                f'either {flag.flag.name} or "{key}" in {CONFIG}',
                "both, which the engine refuses as mutually exclusive",
                f"leave {flag.flag.name} out",
                (*place, *places),
            )
