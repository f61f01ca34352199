"""What is in force after SGLang's own resolution: algorithm, drafts, path of the head, unasked changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from draftproof.errors import SourceError
from draftproof.stacks.evaluation import Unknown
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.sglang.launch.launch_context import LaunchContext
from draftproof.stacks.sglang.launch.model_view import MODEL_CONFIG
from draftproof.stacks.sglang.launch.speculation_findings import HEAD_ALGORITHMS
from draftproof.stacks.source import SourceTree

FACTORY = "from_server_args"
_WATCHED = {
    "max_running_requests": "at most {after} requests run at once, where nobody gave a limit",
    "disable_overlap_schedule": "the overlap schedule is switched off",
    "disable_radix_cache": "the prefix cache is switched off",
    "enable_mixed_chunk": "mixed chunks are switched off",
    "speculative_adaptive": "adaptive speculation is switched off",
    "speculative_use_rejection_sampling": "rejection sampling is switched on",
    "speculative_num_steps": "steps become {after}, where {before} was given",
    "speculative_num_draft_tokens": "draft tokens become {after}, where {before} was given",
    "page_size": "the page size becomes {after}, where {before} was given",
    "enable_multi_layer_eagle": "every layer of the head is used, one a step",
    "moe_runner_backend": "the expert kernels become {after}, where {before} was given",
    "attention_backend": "the attention backend becomes {after}, where {before} was given",
}
"""Fields whose change a user should hear of. What is merely filled in where nothing was given is no change,
but for the limit of requests."""
_FILLED_COUNTS = ("max_running_requests",)


def speculation_in_force(context: LaunchContext) -> Reading[str]:
    """The algorithm, when it drafts with the checkpoint's own head."""
    resolution = context.resolution
    places = resolution.places("speculative_algorithm")
    state = resolution.after.get("speculative_algorithm")
    if resolution.raised is not None:
        return absent(f"the start stops with {resolution.raised}", resolution.raised.place)
    if resolution.lost:
        lost = () if resolution.place is None else (resolution.place,)
        return not_understood(f"the resolution could not be followed: {resolution.lost}", *lost)
    if state is None or isinstance(state.value, Unknown):
        return not_understood("looked for speculative_algorithm among the resolved arguments", *places)
    if state.value is None:
        return absent("no speculative algorithm is in force", *places)
    if state.value not in HEAD_ALGORITHMS:
        return absent(
            f"{state.value} is in force, which does not draft with the checkpoint's own head", *places
        )
    given = context.values.text("speculative_algorithm")
    sentence = f"{given} becomes {state.value}" if given != state.value else f"{state.value} is in force"
    return found(str(state.value), sentence, *places)


def drafts_in_force(context: LaunchContext) -> Reading[int]:
    """K: drafts per verify pass."""
    resolution = context.resolution
    steps = resolution.value("speculative_num_steps")
    branches = resolution.value("speculative_eagle_topk")
    rows = resolution.value("speculative_num_draft_tokens")
    places = (*resolution.places("speculative_num_steps"), *resolution.places("speculative_num_draft_tokens"))
    if not isinstance(steps, int) or not isinstance(rows, int):
        return not_understood("looked for the numbers of steps and of draft tokens in force", *places)
    drafts = steps if branches == 1 else rows - 1
    return found(
        drafts, f"{steps} steps, {branches} branches, {rows} rows per verify pass: K = {drafts}", *places
    )


def head_path(context: LaunchContext) -> Reading[str]:
    """Where the head's weights are looked for: a path in force, or the rule that falls back on the target."""
    resolution = context.resolution
    path = resolution.value("speculative_draft_model_path")
    places = resolution.places("speculative_draft_model_path")
    if isinstance(path, str):
        own = path == resolution.value("model_path")
        return found(path, f"the head is read from {path}{', the target itself' if own else ''}", *places)
    fallback = path_fallback(context.tree)
    if fallback.value is None:
        return fallback
    target = str(resolution.value("model_path") or context.checkpoint.name)
    return found(target, f"no path is set, and {fallback.sentence}", *fallback.places)


def path_fallback(tree: SourceTree) -> Reading[str]:
    """The rule `model_path or <the target's>` with which the draft's config is made."""
    looked_for = f"looked for `model_path or ...` in {FACTORY} of {MODEL_CONFIG}"
    try:
        module = tree.syntax(MODEL_CONFIG)
    except SourceError as error:
        return not_understood(f"{looked_for}: {error}")
    functions = [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == FACTORY]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and _falls_back(node):
                return found(
                    "target", "the path falls back on the target's", Place(MODEL_CONFIG, node.lineno)
                )
    if not functions:
        return not_understood(f"{looked_for}, and there is no such function")
    return absent(f"{looked_for}, and it is not there", Place(MODEL_CONFIG, functions[0].lineno))


def _falls_back(node: ast.BoolOp) -> bool:
    first, last = node.values[0], node.values[-1]
    return (
        isinstance(first, ast.Name)
        and first.id == "model_path"
        and isinstance(last, ast.Attribute)
        and last.attr == "model_path"
    )


def changes(context: LaunchContext) -> Iterator[Reading[str]]:
    """What the version changes without being asked."""
    resolution = context.resolution
    if resolution.raised is not None:
        return
    if resolution.lost:
        lost = () if resolution.place is None else (resolution.place,)
        yield not_understood(f"the resolution could not be followed: {resolution.lost}", *lost)
        return
    for field, sentence in _WATCHED.items():
        before, after = resolution.before.get(field), resolution.value(field)
        if _has_changed(field, before, after):
            said = _said(context, field)
            text = sentence.format(before=before, after=after) + (f" ({said})" if said else "")
            yield found(field, text, *resolution.places(field))


def _has_changed(field: str, before: Any, after: Any) -> bool:
    if isinstance(before, Unknown) or after is None or before == after:
        return False
    return before not in (None, "auto") or field in _FILLED_COUNTS


def _said(context: LaunchContext, field: str) -> str:
    """Whether the version says so in its log: within a few lines of where it sets the field."""
    places = context.resolution.places(field)
    if not places:
        return ""
    near = any(
        message.place.file == place.file and abs(message.place.line - place.line) <= 12
        for message in context.resolution.log
        for place in places
    )
    return "" if near else "without a word in the log"
