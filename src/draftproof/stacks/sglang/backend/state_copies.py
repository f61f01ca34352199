"""How many copies of the recurrent state one request takes: the version's own arithmetic, carried out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftproof.errors import SourceError
from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.evaluation import Given, Missing
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.sglang.backend.selector import Answer, Selectors
from draftproof.stacks.sglang.backend.state_types import BYTES, state_type
from draftproof.stacks.sglang.launch.options import SERVER_ARGS
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import find_function

POOL = "sglang/srt/mem_cache/memory_pool.py"
SIZING_FILES = (
    ("sglang/srt/mem_cache/kv_cache_configurator.py", "KVCacheConfigurator"),
    ("sglang/srt/model_executor/model_runner_kv_cache_mixin.py", "ModelRunnerKVCacheMixin"),
)
SLOTS = "_calculate_mamba_ratio"
BASE = "MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO"
INLINE = "draftproof_slots"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"
BASE_OVERRIDES = "sglang/srt/arg_groups/model_override_base.py"
MOST_DRAFTS = "max_speculative_num_draft_tokens"
_INTERMEDIATE = "intermediate_ssm_state_cache"
_DRAFTS = "speculative_num_draft_tokens"


@dataclass(frozen=True)
class _Count:
    """A number and the lines that give it."""

    value: int
    places: tuple[Place, ...]


def state_copies(selectors: Selectors, config: Mapping[str, Any], has_draft: bool) -> Reading[StateLayout]:
    """The layout of one request's state.

    Args:
        selectors: of the version, for the GPU.
        config: content of config.json.
        has_draft: speculation is on.
    """
    kind = state_type(selectors, config)
    if kind.value is None:
        return not_understood(kind.sentence, *kind.places)
    slots = _slots(selectors)
    if isinstance(slots, str):
        return not_understood(slots)
    values = selectors.values
    drafts, rows, places, words = 0, 0, slots.places, ""
    if has_draft and values.is_true("enable_linear_replayssm_spec"):
        rows = values.number("linear_replayssm_cache_len") or 0
        words = f", and the inputs of {rows} tokens for replay"
        places = (*places, *values.at("enable_linear_replayssm_spec"))
    elif has_draft:
        count = _draft_copies(selectors)
        if isinstance(count, str):
            return not_understood(count, *slots.places)
        drafts, places = count.value, (*places, *count.places)
        words = f", and {drafts} more for the tokens of a verify pass"
    size = BYTES.get(kind.value, 4)
    sentence = f"{slots.value} states of a request in {kind.value}{words}{_most_requests(selectors)}"
    layout = StateLayout(slots.value, drafts, size, kept_rows=rows)
    return found(layout, f"{sentence}; {kind.sentence}", *places, *kind.places)


def no_state() -> Reading[StateLayout]:
    """The model keeps no recurrent state."""
    return absent("the model has no recurrent state")


def _most_requests(selectors: Selectors) -> str:
    most = selectors.values.number("max_running_requests")
    return "" if most is None else f", for at most {most} requests"


def _slots(selectors: Selectors) -> _Count | str:
    """Slots of the state pool that one request takes."""
    tree = selectors.tree
    for file, cls in SIZING_FILES:
        if not tree.has(file):
            continue
        definition = find_function(tree, file, f"{cls}.{SLOTS}")
        if definition is not None:
            return _counted(_ask_method(selectors, file, f"{cls}.{SLOTS}"), definition.place)
        inline = _inline(tree, file)
        if inline is not None:
            overlay, place = inline
            other = selectors.on(overlay)
            return _counted(other.call(file, INLINE, _sizer(other)), place)
    wanted = " or ".join(file for file, _ in SIZING_FILES)
    return f"looked for {SLOTS}, or a sum with {BASE}, in {wanted}"


def _counted(answer: Answer, place: Place) -> _Count | str:
    if isinstance(answer.value, int):
        return _Count(answer.value, (place,))
    return f"carried out the number of slots at {place}: {answer.lost or answer.raised}"


def _ask_method(selectors: Selectors, file: str, name: str) -> Answer:
    if selectors.is_published:
        extra = {
            "enable_mamba_extra_buffer": selectors.call(
                BASE_OVERRIDES, "mamba_extra_buffer_of", selectors.server_args
            ).value,
            "enable_mamba_extra_buffer_lazy": selectors.call(
                OVERRIDES, "mamba_extra_buffer_lazy_of", selectors.server_args
            ).value,
        }
        selectors = selectors.asking(replace(selectors.values, values={**selectors.values.values, **extra}))
    return selectors.call(file, name, _sizer(selectors))


def _sizer(selectors: Selectors) -> Given:
    """The object that sizes pools."""
    has_draft = selectors.values.values.get("speculative_algorithm") is not None
    algorithm = Given("spec_algorithm", methods={"is_none": lambda *_: not has_draft})
    arguments = selectors.server_args
    if not selectors.is_published:
        arguments = Given(
            "server_args", arguments.attributes, SERVER_ARGS, "ServerArgs", missing=Missing.UNKNOWN
        )
    return Given("sizer", {"server_args": arguments, "spec_algorithm": algorithm}, missing=Missing.UNKNOWN)


def _inline(tree: SourceTree, file: str) -> tuple[SourceTree, Place] | None:
    """Older versions add the slots up in the middle of a method: those statements as a function."""
    for node in ast.walk(tree.syntax(file)):
        if not isinstance(node, ast.If):
            continue
        for index, statement in enumerate(node.body):
            is_sum = any(
                isinstance(child, ast.Name) and child.id == BASE for child in ast.walk(statement)
            ) and any(
                isinstance(child, ast.Assign) and _assigns(child, "ratio") for child in ast.walk(statement)
            )
            if is_sum:
                body = "\n".join(ast.unparse(part) for part in node.body[: index + 1])
                lines = "\n".join(f"    {line}" for line in body.splitlines())
                text = f"{tree.text(file)}\n\ndef {INLINE}(self):\n{lines}\n    return ratio\n"
                return OverlaidTree(tree, {file: text}), Place(file, statement.lineno)
    return None


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _draft_copies(selectors: Selectors) -> _Count | str:
    """States that a verify pass leaves, one for each of its tokens."""
    pool = intermediate_states(selectors.tree)
    if pool.value is None:
        return pool.sentence
    drafts = selectors.values.number(_DRAFTS)
    if selectors.values.is_true("speculative_adaptive"):
        file = OVERRIDES if selectors.is_published else SERVER_ARGS
        name = MOST_DRAFTS if selectors.is_published else f"ServerArgs.{MOST_DRAFTS}"
        most = selectors.call(file, name, _sizer(selectors).attributes["server_args"]).value
        drafts = most if isinstance(most, int) else None
    if drafts is None:
        return "how many tokens a verify pass has is not known"
    return _Count(drafts, (*pool.places, *selectors.values.at(_DRAFTS)))


def intermediate_states(tree: SourceTree) -> Reading[bool]:
    """Whether the state pool keeps one state for each token of a verify pass."""
    looked_for = f"looked for {_INTERMEDIATE} with {_DRAFTS} in its shape in {POOL}"
    try:
        module = tree.syntax(POOL)
    except SourceError as error:
        return not_understood(f"{looked_for}: {error.message}")
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Assign)
            and _assigns(node, _INTERMEDIATE)
            and isinstance(node.value, ast.Call)
        ):
            names = {child.id for child in ast.walk(node.value) if isinstance(child, ast.Name)}
            if _DRAFTS in names:
                return found(True, "one state for each token of a verify pass", Place(POOL, node.lineno))
    return not_understood(looked_for)
