"""What vLLM refuses of single requests, or changes of the server's limits, once speculation is on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.classes import Function, find_class
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree

SAMPLING = "vllm/sampling_params.py"
SAMPLING_CLASS = "SamplingParams"
CHECK = "_validate_spec_decode"
ENGINE_CONFIG = "vllm/config/vllm.py"
ENGINE_CLASS = "VllmConfig"
LIMIT = "max_num_scheduled_tokens"


def refused_parameters(tree: SourceTree) -> Reading[tuple[str, ...]]:
    """Sampling parameters that make a request an error while speculation is on."""
    wanted = f"{SAMPLING_CLASS}.{CHECK} in {SAMPLING}"
    try:
        cls = find_class(tree, SAMPLING, SAMPLING_CLASS)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    method = cls.method(CHECK) if cls is not None else None
    if method is None:
        return not_understood(f"looked for {wanted}", Place(SAMPLING, 1))
    names = tuple(dict.fromkeys(_names_that_raise(method)))
    place = Place(SAMPLING, method.lineno)
    if not names:
        return absent(f"{CHECK} refuses nothing", place)
    return found(names, f"requests with {' or '.join(names)} are refused while speculation is on", place)


def limit_findings(tree: SourceTree) -> Iterator[LaunchFinding]:
    """Notes on what a server with speculation does not take."""
    refused = refused_parameters(tree)
    claim = "What speculation refuses of a request is known."
    expected = f"{SAMPLING_CLASS}.{CHECK} in {SAMPLING}"
    if not refused.understood:
        yield LaunchFinding(
            "request-limits", "", Ruling.UNKNOWN, claim, expected, refused.sentence, "", refused.places
        )
    elif refused.value:
        remedy = "send no such parameter, or serve without speculation"
        yield LaunchFinding(
            "request-limits", "", Ruling.WARNS, claim, expected, refused.sentence, remedy, refused.places
        )


def admission_change(tree: SourceTree) -> Reading[str]:
    """How speculation changes what the scheduler admits in one step; absent when it does not."""
    wanted = f"an assignment of {LIMIT} under a test of speculative_config in {ENGINE_CONFIG}"
    try:
        cls = find_class(tree, ENGINE_CONFIG, ENGINE_CLASS)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    if cls is None:
        return not_understood(
            f"looked for {wanted}; there is no class {ENGINE_CLASS}", Place(ENGINE_CONFIG, 1)
        )
    for node in ast.walk(cls.node):
        if isinstance(node, ast.If) and "speculative_config" in ast.unparse(node.test):
            for inner in ast.walk(node):
                if (
                    isinstance(inner, ast.Assign)
                    and isinstance(inner.targets[0], ast.Attribute)
                    and inner.targets[0].attr == LIMIT
                ):
                    value = ast.unparse(inner.value)
                    return found(
                        value,
                        f"while speculation is on, {LIMIT} becomes {value} unless it is given",
                        Place(ENGINE_CONFIG, inner.lineno),
                    )
    return absent(f"looked for {wanted}, and found none", cls.place)


def _names_that_raise(method: Function) -> Iterator[str]:
    """Attributes of `self` in tests whose branch raises."""
    for node in ast.walk(method):
        if isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
            for part in ast.walk(node.test):
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.value, ast.Name)
                    and part.value.id == "self"
                ):
                    yield part.attr
