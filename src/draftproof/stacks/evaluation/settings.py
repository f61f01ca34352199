"""Bounds and choices of an evaluation, and the objects that a caller hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.stacks.evaluation.values import Missing
from draftproof.stacks.place import Place


def _no_decision(text: str, place: Place) -> bool | None:
    return None


@dataclass(frozen=True)
class Settings:
    """How far an evaluation goes, and what is fixed in it.

    Attributes:
        paths: ways through the code that are followed; one more makes an outcome that is not understood.
        steps: statements, calls and loop rounds of one way.
        depth: calls inside calls.
        items: items of a container, and characters of a string.
        bits: of an integer.
        pattern_input: characters that a regular expression is tried on. Python's own matcher is used, whose
            time can grow quickly with the input for a hostile pattern.
        environment: what `os.environ` holds.
        decide: answers a question about an unknown value by its text, or None to follow both ways.
        traced: names of functions whose calls become events: dotted ("torch.empty") or the last part
            ("weight_loader").
        labels_traced: labels of objects whose assigned attributes become events; None for all objects.
        registering: modules whose statements are all carried out before the call, because importing them has
            effects elsewhere: decorators that fill a registry.
    """

    paths: int = 64
    steps: int = 400_000
    depth: int = 60
    items: int = 200_000
    bits: int = 8192
    pattern_input: int = 2_000
    environment: Mapping[str, str] = field(default_factory=dict)
    decide: Callable[[str, Place], bool | None] = _no_decision
    traced: frozenset[str] = frozenset()
    labels_traced: frozenset[str] | None = None
    registering: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Given:
    """An object that the caller hands to the evaluated code.

    It is made anew for each way through the code; the same `Given` used twice is one object.

    Attributes:
        name: how conditions and events call it: "server_args".
        attributes: Python's own values, `Unknown`, `Symbol`, `Named`, other `Given`, or Python functions. A
            Python function is called with the evaluated code's values.
        file: file of its class in the tree; empty for a class that the caller invents.
        class_name: of its class ("ModelConfig"); the name of the invented class when there is no file.
        methods: Python functions whose first argument is the object (an `Instance`), or `NativeFunction`.
        missing: what it answers for other attributes.
    """

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    class_name: str = "object"
    methods: Mapping[str, Any] = field(default_factory=dict)
    missing: Missing = Missing.RAISES


@dataclass(frozen=True)
class Named:
    """A value of the tree by file and name: a class, function or constant, used as an argument.

    Attributes:
        file: "vllm/config/kernel.py".
        name: dotted inside the file: "NvFp4MoeBackend.MARLIN".
    """

    file: str
    name: str


@dataclass(frozen=True)
class NotInstalled:
    """As a substitute for a module: importing it raises ModuleNotFoundError."""
