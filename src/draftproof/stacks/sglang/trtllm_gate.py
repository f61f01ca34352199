"""Which GPUs SGLang itself chooses the TRT-LLM expert kernels for: the tests around each place that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree

RUNNER = "flashinfer_trtllm"
FIELD = "moe_runner_backend"
FOLDERS = ("sglang/srt/arg_groups",)
FILES = ("sglang/srt/server_args.py",)
OTHER_PRECISION = "mxfp8"
"""Branches for this precision say nothing about the others."""
DATACENTRE = ("is_sm100", "is_sm100_supported")
"""Names of the test for SM100 and SM103, which SM120 does not pass."""


def only_for_datacentre(tree: SourceTree) -> Reading[bool]:
    """Whether every place that chooses the TRT-LLM expert kernels on its own asks for SM100 first."""
    looked_for = f"looked for places that set {FIELD} to {RUNNER!r} in the handling of arguments"
    guarded: list[Place] = []
    free: list[Place] = []
    files = [*FILES, *(file for folder in FOLDERS for file in tree.containing(folder, RUNNER))]
    for file in files:
        try:
            module = tree.syntax(file)
        except SourceError as error:
            return not_understood(f"{looked_for}: {error}")
        for place, tests in _choices(file, module, ()):
            if any(_is_about(test, OTHER_PRECISION) for test in tests):
                continue
            (guarded if any(_asks(test) for test in tests) else free).append(place)
    if not guarded and not free:
        return not_understood(f"{looked_for}, and there is none")
    if free:
        return found(False, f"{free[0]} chooses {RUNNER} without asking for SM100", *free)
    sentence = f"each of the {len(guarded)} places that choose {RUNNER} asks for SM100 first"
    return found(True, sentence, *guarded)


def _choices(
    file: str, node: ast.AST, tests: tuple[ast.expr, ...]
) -> Iterator[tuple[Place, tuple[ast.expr, ...]]]:
    """The assignments with the conditions under which they stand."""
    if isinstance(node, ast.Assign) and _is_runner(node.value) and any(map(_names_field, node.targets)):
        yield Place(file, node.lineno), tests
    if isinstance(node, ast.If):
        for statement in node.body:
            yield from _choices(file, statement, (*tests, node.test))
        for statement in node.orelse:
            yield from _choices(file, statement, tests)
        return
    for child in ast.iter_child_nodes(node):
        yield from _choices(file, child, tests)


def _is_runner(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == RUNNER


def _names_field(target: ast.expr) -> bool:
    if isinstance(target, ast.Attribute):
        return target.attr == FIELD
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == FIELD
    )


def _is_about(test: ast.expr, word: str) -> bool:
    return any(isinstance(node, ast.Constant) and node.value == word for node in ast.walk(test))


def _asks(test: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in DATACENTRE)
        or (isinstance(node, ast.Name) and node.id in DATACENTRE)
        for node in ast.walk(test)
    )
