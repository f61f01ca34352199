"""How a version of vLLM keeps the recurrent state of one sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from draftproof.hardware.shape import Shape
from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.backend.attention_kernels import (
    SequenceQuestion,
    attention_backend,
    prefill_backend,
)
from draftproof.stacks.vllm.backend.kernel_questions import ask
from draftproof.stacks.vllm.definitions import find_definition

SPECS = "vllm/v1/kv_cache_interface.py"
SPEC_CLASS = "MambaSpec"
MODEL_CONFIGS = "vllm/model_executor/models/config.py"
STATE_DTYPE = "mamba_ssm_dtype"
GDN_LAYER = "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py"
CHECKPOINT_GRID = "FLASHINFER_GDN_CHECKPOINT_ALIGNMENT"
_KEY_VALUE_BYTES = 2


@dataclass(frozen=True)
class CacheWishes:
    """What the command says about caches.

    Attributes:
        prefix_caching: on or off; None when it says nothing.
        state_dtype: "float32", "bfloat16", or "auto".
        drafts: K.
    """

    prefix_caching: bool | None
    state_dtype: str
    drafts: int


def state_layout(question: SequenceQuestion, wishes: CacheWishes) -> Reading[StateLayout]:
    """The copies and their sizes; not understood when one of the rules could not be carried out."""
    shape = question.shape
    if shape.recurrent is None:
        return found(StateLayout(0, 0, 4), "the model has no recurrent state")
    caching = wishes.prefix_caching
    if caching is None:
        default = ask(question.evaluator, "prefix_caching_by_default")
        if default.value is None or default.value.error is not None:
            return not_understood(default.sentence, *default.places)
        caching = bool(default.value.value)
    mode = _value(question, "cache_mode", caching)
    checkpoints = _checkpoints(question, caching)
    committed = _value(question, "state_blocks", mode, 0, checkpoints)
    every = _value(question, "state_blocks", mode, wishes.drafts, checkpoints)
    columns = _columns(question, wishes.drafts)
    if not isinstance(committed, int) or not isinstance(every, int) or columns is None:
        wanted = f"{SPEC_CLASS}.max_memory_usage_bytes in {SPECS}, and the shape of a Gated DeltaNet state"
        return not_understood(f"looked for {wanted}, and could not carry them out", Place(SPECS, 1))
    size, dtype_place = _state_bytes(question, wishes)
    block = _block_tokens(question, wishes, size, checkpoints)
    layout = StateLayout(committed, every - committed, size, block, columns)
    kept = "prefix caching" if caching else "no prefix caching"
    sentence = (
        f"{every} full states a sequence ({kept}, cache mode {mode}): {committed} without drafts and "
        f"{every - committed} more for K={wishes.drafts}; {columns} more columns of convolution in each"
    )
    return found(layout, sentence, *_spec_place(question.stack.tree), *dtype_place)


def _value(question: SequenceQuestion, name: str, *arguments: Any) -> Any:
    answer = ask(question.evaluator, name, *arguments)
    return None if answer.value is None or answer.value.error is not None else answer.value.value


def _checkpoints(question: SequenceQuestion, caching: bool) -> int:
    """One more state where FlashInfer's prefill exports checkpoints for the prefix cache."""
    tree = question.stack.tree
    exports = tree.has(GDN_LAYER) and "num_prefill_checkpoint_blocks" in tree.text(GDN_LAYER)
    return 1 if caching and exports and prefill_backend(question).value == "flashinfer" else 0


def _columns(question: SequenceQuestion, drafts: int) -> int | None:
    """Columns of the convolution's state that K drafts add."""
    recurrent = question.shape.recurrent
    assert recurrent is not None
    heads = {
        "keys": recurrent.num_key_heads,
        "values": recurrent.num_value_heads,
        "key": recurrent.key_head_dim,
        "value": recurrent.value_head_dim,
        "kernel": recurrent.conv_kernel,
    }
    sizes = []
    for count in (0, drafts):
        shapes = _value(question, "state_shapes", 1, heads, count)
        if not isinstance(shapes, tuple | list) or not shapes:
            return None
        sizes.append(math.prod(shapes[0]))
    width = sizes[0] // max(1, recurrent.conv_kernel - 1)
    return (sizes[1] - sizes[0]) // width if width else None


def _state_bytes(question: SequenceQuestion, wishes: CacheWishes) -> tuple[int, tuple[Place, ...]]:
    """Bytes of an element: the command's word, else the config's where the version reads it, else BF16."""
    if wishes.state_dtype not in ("", "auto"):
        return (4 if "32" in wishes.state_dtype else 2), ()
    place = _reads_state_dtype(question.stack.tree)
    declared = question.text.get(STATE_DTYPE)
    if place and isinstance(declared, str):
        return (4 if "32" in declared else 2), place
    return 2, ()


def _reads_state_dtype(tree: SourceTree) -> tuple[Place, ...]:
    if not tree.has(MODEL_CONFIGS):
        return ()
    for number, line in enumerate(tree.text(MODEL_CONFIGS).splitlines(), 1):
        if f'"{STATE_DTYPE}"' in line:
            return (Place(MODEL_CONFIGS, number),)
    return ()


def _block_tokens(question: SequenceQuestion, wishes: CacheWishes, size: int, checkpoints: int) -> int | None:
    """Tokens of a block that is at least as large as one layer's state, as the platform aligns them."""
    shape, ranks = question.shape, question.ranks
    if shape.attention is None or shape.recurrent is None:
        return None
    backend = attention_backend(question, question.asked[0])
    name = backend.value.value if backend.value is not None and backend.value.error is None else None
    smallest = _value(question, "smallest_block", name) if name else None
    if not isinstance(smallest, int):
        return None
    grid = math.lcm(max(smallest, 16), 64) if checkpoints else max(smallest, 16)
    heads = max(1, shape.attention.num_key_value_heads // ranks)
    token = 2 * heads * shape.attention.head_dim * (1 if "fp8" in question.cache else _KEY_VALUE_BYTES)
    state = _state_size(shape, ranks, size, wishes.drafts)
    return grid * math.ceil(state / (grid * token))


def _state_size(shape: Shape, ranks: int, size: int, drafts: int) -> int:
    """Bytes of one layer's convolution and recurrent state on one rank."""
    recurrent = shape.recurrent
    assert recurrent is not None
    keys = recurrent.num_key_heads * recurrent.key_head_dim
    values = recurrent.num_value_heads * recurrent.value_head_dim
    convolution = (2 * keys + values) * (recurrent.conv_kernel - 1 + drafts) * 2
    return (convolution + values * recurrent.key_head_dim * size) // ranks


def _spec_place(tree: SourceTree) -> tuple[Place, ...]:
    defined = find_definition(tree, SPECS, SPEC_CLASS) if tree.has(SPECS) else None
    return (defined.place,) if defined is not None else ()
