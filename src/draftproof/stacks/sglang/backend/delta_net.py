"""The kernels of Gated DeltaNet layers: the version's own dispatcher, carried out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.evaluation import Given, Missing
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.dense_kernels import function_place
from draftproof.stacks.sglang.backend.selector import Answer, Selectors, combined
from draftproof.stacks.sglang.backend.state_types import state_type, torch_type
from draftproof.stacks.sglang.pretended_machine import CUDA_VERSION, answers
from draftproof.stacks.syntax import find_function

BACKEND = "sglang/srt/layers/attention/linear/gdn_backend.py"
FLASHINFER_KERNELS = "sglang/srt/layers/attention/linear/kernels/gdn_flashinfer.py"
CHOICE = "sglang/srt/layers/attention/linear/utils.py"
OLD_BACKEND = "sglang/srt/layers/attention/hybrid_linear_attn_backend.py"
DISPATCHER = "GDNKernelDispatcher"
DEFAULT = "flashinfer_gdn_prefill_default"
RESOLVE = "resolve_linear_attn_backends"
OLD_CLASS = "GDNAttnBackend"
CUTEDSL_VARIABLE = "SGLANG_USE_CUTEDSL_GDN_DECODE"
_GROUP = "Gated DeltaNet layers"
_KERNELS = {
    "TritonGDNKernel": "triton",
    "FlashInferGDNKernel": "flashinfer",
    "CuteDSLGDNKernel": "cutedsl",
}
_PHASES = (Phase.PREFILL, Phase.DECODE, Phase.VERIFY)
_FIELDS = {
    Phase.PREFILL: "linear_attn_prefill_backend",
    Phase.DECODE: "linear_attn_decode_backend",
    Phase.VERIFY: "linear_attn_verify_backend",
}


def delta_net_choices(
    selectors: Selectors, config: Mapping[str, Any], has_draft: bool
) -> tuple[KernelChoice, ...]:
    """The kernels of prefill, decode, and verify where there is one.

    Args:
        selectors: of the version, for the GPU.
        config: content of config.json.
        has_draft: speculation is on.
    """
    return tuple(_choices(selectors, config, has_draft))


def _choices(selectors: Selectors, config: Mapping[str, Any], has_draft: bool) -> Iterator[KernelChoice]:
    answer, sentence = _answer(selectors, config)
    places = _places(selectors)
    for index, phase in enumerate(_PHASES if has_draft else _PHASES[:2]):
        backend: Reading[str] = not_understood(sentence or f"looked for {DISPATCHER} in {BACKEND}")
        valid: Reading[bool] = not_understood(backend.sentence)
        if answer is not None and answer.raised is not None:
            backend = not_understood(f"{DISPATCHER}: {answer.raised}", answer.raised.place)
            valid = found(False, answer.raised.message or str(answer.raised), answer.raised.place)
        elif answer is not None and answer.is_known:
            names = answer.value
            is_tree = phase is Phase.VERIFY and (selectors.values.number("speculative_eagle_topk") or 1) > 1
            kernel = names[3] if is_tree else names[index]
            backend = found(
                _KERNELS.get(kernel, kernel), f"{kernel}{sentence}", *places, *_set_at(selectors, phase)
            )
            valid = found(True, f"{DISPATCHER} makes it on {selectors.gpu.architecture}", *places[:1])
        name = backend.value or ""
        yield KernelChoice(
            Operation.GATED_DELTA_NET,
            _GROUP,
            "",
            phase,
            backend,
            valid,
            explicit="--linear-attn-backend triton" if valid.value is False else "",
            needs=selectors.packages.needs(name, backend.places) if name else (),
        )


def _answer(selectors: Selectors, config: Mapping[str, Any]) -> tuple[Answer | None, str]:
    """The dispatcher's answer, and what to say beside it."""
    tree = selectors.tree
    if not tree.has(BACKEND):
        return _single_kernel(selectors)
    default, note = None, ""
    if function_place(tree, BACKEND, DEFAULT) is not None:
        answer = _prefill_default(selectors, config)
        if not answer.is_known:
            return None, f"carried out {DEFAULT}: {answer.lost or answer.raised}"
        default = answer.value
        note = f" ({DEFAULT} with CUDA {CUDA_VERSION})" if default else ""
    return dispatcher_answer(selectors, default), note


def dispatcher_answer(selectors: Selectors, prefill_default: str | None = None) -> Answer:
    """Classes that run prefill, decode, verify, and verify of a tree.

    Args:
        selectors: of a version that has a dispatcher.
        prefill_default: the prefill backend where no option names one; None for the base.
    """
    if function_place(selectors.tree, CHOICE, RESOLVE) is None:
        return selectors.ask("delta_net_kernels_by_arguments", selectors.arguments)
    return selectors.ask("delta_net_kernels", prefill_default)


def _prefill_default(selectors: Selectors, config: Mapping[str, Any]) -> Answer:
    """The version's own default of the prefill kernel, which looks at the state's type and at head sizes."""
    kind = state_type(selectors, config)
    text = config.get("text_config")
    section = text if isinstance(text, Mapping) else config
    cache = Given("mamba_cache", {"temporal": Given("temporal", {"dtype": torch_type(kind.value or "")})})
    pool = Given("pool", {"mamba_pool": Given("mamba_pool", {"mamba_cache": cache})})
    linear = Given("config", dict(section), missing=Missing.RAISES)
    runner = Given("runner", {"req_to_token_pool": pool, "model_config": Given("model_config")})
    evaluator = selectors.with_substitutes(
        {
            "sglang.srt.configs.hybrid_arch.hybrid_gdn_config": answers(linear),
            f"{BACKEND.removesuffix('.py').replace('/', '.')}.hybrid_gdn_config": answers(linear),
        }
    )
    return combined(evaluator.call(BACKEND, DEFAULT, runner))


def _single_kernel(selectors: Selectors) -> tuple[Answer | None, str]:
    """Versions with one kernel, that an environment variable may exchange for decode."""
    definition = find_function(selectors.tree, OLD_BACKEND, f"{OLD_CLASS}.__init__")
    if definition is None:
        return None, f"looked for {DISPATCHER} in {BACKEND}, and for {OLD_CLASS} in {OLD_BACKEND}"
    names = {node.id for node in _names(definition.node)}
    if "fused_sigmoid_gating_delta_rule_update" not in names:
        return None, f"looked for the kernel that {OLD_CLASS} takes in {OLD_BACKEND}"
    triton = "TritonGDNKernel"
    return Answer((triton, triton, triton, triton)), f" unless {CUTEDSL_VARIABLE} is set"


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Name))


def _places(selectors: Selectors) -> tuple[Place, ...]:
    tree = selectors.tree
    if not tree.has(BACKEND):
        place = function_place(tree, OLD_BACKEND, f"{OLD_CLASS}.__init__")
        return () if place is None else (place,)
    dispatcher = function_place(tree, BACKEND, f"{DISPATCHER}.__init__")
    choice = function_place(tree, CHOICE, RESOLVE) or function_place(
        tree, CHOICE, "initialize_linear_attn_config"
    )
    return tuple(place for place in (dispatcher, choice) if place is not None)


def _set_at(selectors: Selectors, phase: Phase) -> tuple[Place, ...]:
    return selectors.values.at(_FIELDS[phase]) or selectors.values.at("linear_attn_backend")
