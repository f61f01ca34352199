"""Which attention backend and which Gated DeltaNet kernels a version of vLLM chooses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.hardware.shape import Shape
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Evaluator
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.kernel_machine import Machine
from draftproof.stacks.vllm.backend.kernel_questions import Answer, ask, name_of
from draftproof.stacks.vllm.backend.kernel_site import kernel_site, libraries_of
from draftproof.stacks.vllm.backend.library_needs import needs_of
from draftproof.stacks.vllm.definitions import find_definition
from draftproof.stacks.vllm.environment_variables import known_variables

PLATFORM = "vllm/platforms/cuda.py"
PRIORITIES = "_get_backend_priorities"
GDN_LAYER = "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py"
EARLIER_GDN_LAYER = "vllm/model_executor/layers/mamba/gdn_linear_attn.py"
RESOLVER = "_resolve_gdn_prefill_backend"
FUSED_SWITCH = "VLLM_GDN_DECODE_KERNEL"
_RECURRENT = "fused_recurrent_gated_delta_rule"


@dataclass(frozen=True)
class SequenceQuestion:
    """What the kernels that mix a sequence are asked with.

    Attributes:
        stack: the version.
        machine: the GPU and the packages.
        evaluator: in which its selectors are asked.
        shape: of the model.
        text: the text section of the config.
        ranks: tensor parallel size.
        cache: precision of keys and values, as the option says it: "auto", "fp8".
        asked: attention backends asked for by name: the target's and the head's; empty for none.
        prefill: the Gated DeltaNet prefill backend asked for; empty for none.
    """

    stack: Stack
    machine: Machine
    evaluator: Evaluator
    shape: Shape
    text: Mapping[str, Any]
    ranks: int
    cache: str
    asked: tuple[str, str] = ("", "")
    prefill: str = ""


def attention_backend(question: SequenceQuestion, asked: str) -> Reading[Answer]:
    """The full name of the backend's class, as the platform chooses it."""
    attention = question.shape.attention
    if attention is None:
        return not_understood("the model has no full attention")
    values = {"head_size": attention.head_dim, "kv_cache_dtype": question.cache, "block_size": None}
    heads = max(1, attention.num_heads // question.ranks)
    return ask(question.evaluator, "attention", asked, values, heads)


def attention_choices(question: SequenceQuestion) -> Iterator[KernelChoice]:
    """The target's backend, which verifies too, and the head's."""
    if question.shape.attention is None:
        return
    for group, phase, asked in (
        ("full attention, verify passes included", Phase.ANY, question.asked[0]),
        ("the head's attention", Phase.DRAFT, question.asked[1] or question.asked[0]),
    ):
        answer = attention_backend(question, asked)
        yield _attention_choice(question, group, phase, asked, answer)


def _attention_choice(
    question: SequenceQuestion, group: str, phase: Phase, asked: str, answer: Reading[Answer]
) -> KernelChoice:
    selector = _definition(question.stack.tree, PLATFORM, PRIORITIES)
    if answer.value is None:
        lost: Reading[bool] = not_understood(answer.sentence, *answer.places)
        return KernelChoice(
            Operation.ATTENTION, group, "", phase, not_understood(answer.sentence, *answer.places), lost
        )
    if answer.value.error is not None:
        text = str(answer.value.error)
        refused: Reading[bool] = found(False, text, *answer.places, *selector)
        backend: Reading[str] = (
            found(asked, "asked for by name", *selector) if asked else absent(text, *answer.places)
        )
        return KernelChoice(Operation.ATTENTION, group, "", phase, backend, refused)
    name = str(answer.value.value).rpartition(".")[2]
    site = kernel_site(question.stack.tree, name)
    why = "asked for by name" if asked else f"the first of the list at {selector[0]}" if selector else ""
    valid = found(
        True,
        f"validate_configuration of {name} admits SM{question.machine.capability}",
        *(site.places if site is not None else answer.places),
    )
    return KernelChoice(
        Operation.ATTENTION,
        group,
        "",
        phase,
        found(name, why, *selector, *answer.places),
        valid,
        needs=needs_of(question.stack, libraries_of(name), name),
    )


def gated_delta_choices(question: SequenceQuestion) -> Iterator[KernelChoice]:
    """Prefill, decode and verify."""
    if question.shape.recurrent is None:
        return
    yield _prefill(question)
    yield from _decode(question)


def prefill_backend(question: SequenceQuestion) -> Reading[str]:
    """The kernel family of prefill: "flashinfer", "triton", ..."""
    tree = question.stack.tree
    text = {key: question.text.get(key) for key in ("linear_key_head_dim", "linear_value_head_dim")}
    if tree.has(GDN_LAYER):
        return name_of(ask(question.evaluator, "gated_delta_prefill", text, question.prefill))
    return name_of(ask(question.evaluator, "earlier_gated_delta_prefill", text, question.prefill))


def _prefill(question: SequenceQuestion) -> KernelChoice:
    tree = question.stack.tree
    name = prefill_backend(question)
    places = _definition(tree, GDN_LAYER, RESOLVER) or _definition(
        tree, EARLIER_GDN_LAYER, "ChunkGatedDeltaRule"
    )
    if name.value is None:
        lost: Reading[bool] = not_understood(name.sentence, *name.places)
        return KernelChoice(Operation.GATED_DELTA_NET, "prefill", "", Phase.PREFILL, name, lost)
    library_missing = name.value == "flashinfer" and not question.machine.has_flashinfer
    sentence = f"{name.value} admits SM{question.machine.capability}"
    if library_missing:
        sentence = "FlashInfer is chosen without looking whether it is there, and it is not"
    return KernelChoice(
        Operation.GATED_DELTA_NET,
        "prefill",
        "",
        Phase.PREFILL,
        found(name.value, "chosen by the layer's own rule", *places),
        found(not library_missing, sentence, *places),
        explicit="--gdn-prefill-backend triton" if library_missing else "",
        needs=needs_of(question.stack, libraries_of(name.value), "the prefill kernel"),
    )


def _decode(question: SequenceQuestion) -> Iterator[KernelChoice]:
    """Verify passes take the fused kernel where there is one; plain decoding takes the Triton one."""
    tree = question.stack.tree
    file = GDN_LAYER if tree.has(GDN_LAYER) else EARLIER_GDN_LAYER
    plain = _mention(tree, file, _RECURRENT)
    if not plain:
        lost = f"looked for {_RECURRENT} in {file}"
        yield KernelChoice(
            Operation.GATED_DELTA_NET, "decode and verify", "", Phase.VERIFY, not_understood(lost),
            not_understood(lost),
        )  # fmt: skip
        return
    triton = found(f"Triton {_RECURRENT}", "the layer's recurrent kernel", *plain)
    runs = found(True, "Triton kernels run on every GPU from SM80", *plain)
    yield KernelChoice(Operation.GATED_DELTA_NET, "decode", "", Phase.DECODE, triton, runs)
    variables = known_variables(tree).value or {}
    if FUSED_SWITCH not in variables:
        yield KernelChoice(Operation.GATED_DELTA_NET, "verify", "", Phase.VERIFY, triton, runs)
        return
    yield _fused(question, triton, runs, variables[FUSED_SWITCH])


def _fused(
    question: SequenceQuestion, triton: Reading[str], runs: Reading[bool], switch: Place
) -> KernelChoice:
    recurrent = question.shape.recurrent
    assert recurrent is not None
    shape = {
        "interleaved": "qwen3_next" in str(question.text.get("model_type", "")),
        "key": recurrent.key_head_dim,
        "value": recurrent.value_head_dim,
        "float32": question.text.get("mamba_ssm_dtype", "float32") == "float32",
    }
    answer = ask(question.evaluator, "gated_delta_decode", shape)
    place = _mention(question.stack.tree, GDN_LAYER, "def _fused_gdn_decode_unsupported_reason")
    if answer.value is None or answer.value.error is not None:
        sentence = answer.sentence
        return KernelChoice(
            Operation.GATED_DELTA_NET, "verify", "", Phase.VERIFY,
            not_understood(sentence, *answer.places), not_understood(sentence, *answer.places),
        )  # fmt: skip
    name, reason = answer.value.value
    if name != "cuda":
        backend = found(triton.value or "Triton", f"not the fused kernel: {reason}", *place, switch)
        return KernelChoice(Operation.GATED_DELTA_NET, "verify", "", Phase.VERIFY, backend, runs)
    why = "the layer's conditions hold; whether the compiled code has it is not seen in the source"
    fused = found("fused_gdn_decode_post_conv_mtp (CUDA)", why, *place, switch)
    valid = found(True, "needs compute capability 8.0, which is there", *place)
    return KernelChoice(Operation.GATED_DELTA_NET, "verify", "", Phase.VERIFY, fused, valid)


def _definition(tree: SourceTree, file: str, name: str) -> tuple[Place, ...]:
    if not tree.has(file):
        return ()
    defined = find_definition(tree, file, name)
    return (defined.place,) if defined is not None else ()


def _mention(tree: SourceTree, file: str, word: str) -> tuple[Place, ...]:
    if not tree.has(file):
        return ()
    for number, line in enumerate(tree.text(file).splitlines(), 1):
        if re.search(rf"\b{re.escape(word)}\w*\(", line):
            return (Place(file, number),)
    return ()
