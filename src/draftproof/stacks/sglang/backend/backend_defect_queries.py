"""What known defects of SGLang's choice of kernels ask of a source: its selectors, on a GPU that shows them.

Each query carries out the version's own code on default values, so that a version that was mended comes out
clean, whichever line was changed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from draftproof.checkpoint.precision import Precision
from draftproof.errors import SourceError
from draftproof.hardware.gpu import Gpu
from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks.module_groups import ModuleGroup
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.backend.attention_kernels import AttentionQuestion, hybrid_refusal
from draftproof.stacks.sglang.backend.delta_net import BACKEND, FLASHINFER_KERNELS, dispatcher_answer
from draftproof.stacks.sglang.backend.dense_kernels import DEEPGEMM, dense_choice
from draftproof.stacks.sglang.backend.expert_kernels import TRTLLM, expert_choice
from draftproof.stacks.sglang.backend.kernel_packages import Packages
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.launch.in_force import ValuesInForce
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind

_DEFAULTS: Mapping[str, Any] = {
    "bf16_gemm_backend": "auto",
    "chunked_prefill_size": 8192,
    "deepep_config": None,
    "deepep_mode": "auto",
    "enable_deterministic_inference": False,
    "fp4_gemm_runner_backend": "auto",
    "fp8_gemm_runner_backend": "auto",
    "linear_attn_backend": "triton",
    "linear_attn_decode_backend": None,
    "linear_attn_prefill_backend": None,
    "linear_attn_verify_backend": None,
    "moe_a2a_backend": "none",
    "moe_runner_backend": "auto",
    "quantization": None,
    "speculative_algorithm": "EAGLE",
    "speculative_eagle_topk": 1,
    "speculative_moe_a2a_backend": None,
    "speculative_moe_runner_backend": None,
}
"""Server arguments of a command that names no kernel."""
_PACKED = ModuleGroup("routed experts", Precision.NVFP4_MODELOPT, True, False, False)
_BLOCKS = ModuleGroup("attention projections", Precision.FP8_BLOCK, False, False, False)
_WORKSTATION = 120
_HANDLING = ("sglang/srt/arg_groups/attention_hook.py", "sglang/srt/server_args.py")
_STATE_FIELD = "mamba_ssm_dtype"
_DECODE_FIELD = "linear_attn_decode_backend"


def packed_experts_without_kernels(base: Selectors) -> Reading[bool]:
    """On SM120, experts in NVFP4 get TRT-LLM's kernels when nobody names a runner."""
    return _experts(base, 120, "auto")


def packed_experts_in_another_layout(base: Selectors) -> Reading[bool]:
    """On SM100, experts in NVFP4 get TRT-LLM's kernels and another layout when nobody names a runner."""
    return _experts(base, 100, "auto")


def runner_accepted_without_kernels(base: Selectors) -> Reading[bool]:
    """On SM120, TRT-LLM's expert kernels are taken when they are asked for."""
    return _experts(base, 120, TRTLLM)


def _experts(base: Selectors, capability: int, asked: str) -> Reading[bool]:
    choice = expert_choice(_on(base, capability, moe_runner_backend=asked), _PACKED)
    if not choice.backend.understood and choice.valid.value is False:
        return found(False, f"it refuses: {choice.valid.sentence}", *choice.valid.places)
    if choice.backend.value is None:
        return not_understood(choice.backend.sentence, *choice.backend.places)
    if choice.backend.value == TRTLLM and choice.valid.value is False:
        return found(True, choice.valid.sentence, *choice.backend.places[:1], *choice.valid.places)
    return found(False, f"{choice.backend.value}: {choice.backend.sentence}", *choice.backend.places)


def deepgemm_unasked(base: Selectors) -> Reading[bool]:
    """On SM120, dense layers in FP8 with block scales get DeepGEMM, whatever the installed build can do."""
    choice = dense_choice(_on(base, 120), _BLOCKS)
    if choice.backend.value is None:
        return not_understood(choice.backend.sentence, *choice.backend.places)
    return found(choice.backend.value == DEEPGEMM, choice.backend.sentence, *choice.backend.places)


def hybrid_default_refused(base: Selectors) -> Reading[bool]:
    """On SM120, FlashInfer is refused for hybrid models, and it is what a command without a backend gets."""
    selectors = _on(base, 120, attention_backend="flashinfer")
    question = AttentionQuestion(selectors, False, True, "Qwen3_5MoeForConditionalGeneration", True)
    refusal = hybrid_refusal(question, "flashinfer")
    if refusal is None or refusal.value is None:
        sentence = "looked for the wrapper of hybrid models" if refusal is None else refusal.sentence
        return not_understood(sentence)
    return found(not refusal.value, refusal.sentence, *refusal.places)


def verify_without_kernel(base: Selectors) -> Reading[bool]:
    """On SM120, a verify pass runs on Triton although decode runs on FlashInfer."""
    tree = base.tree
    if not tree.has(BACKEND) or not tree.has(FLASHINFER_KERNELS):
        return found(False, "this version has no FlashInfer kernel for Gated DeltaNet")
    selectors = _on(base, 120, linear_attn_decode_backend="flashinfer", mamba_ssm_dtype="bfloat16")
    answer = dispatcher_answer(selectors)
    if not answer.is_known:
        return not_understood(f"carried out the dispatcher of {BACKEND}: {answer.lost or answer.raised}")
    _, decode, verify, _ = answer.value
    places = _assignments(tree, FLASHINFER_KERNELS, "supports_target_verify")
    return found(decode != verify, f"decode runs on {decode}, verify on {verify}", *places)


def state_rule_by_option(base: Selectors) -> Reading[bool]:
    """The rule that chooses FlashInfer for a state in BF16 looks at the option alone."""
    tree = base.tree
    looked_for = f"looked for a rule that sets {_DECODE_FIELD} by {_STATE_FIELD} in the handling of arguments"
    for file in _HANDLING:
        try:
            module = tree.syntax(file) if tree.has(file) else ast.Module([], [])
        except SourceError as error:
            return not_understood(f"{looked_for}: {error.message}")
        for node in ast.walk(module):
            if isinstance(node, ast.If) and _names(node.test, _STATE_FIELD) and _sets(node, _DECODE_FIELD):
                reads = _names(node.test, "hf_config") or _names(node.test, "mamba2_state_dtype")
                words = "the checkpoint too" if reads else "the option alone"
                return found(not reads, f"the rule looks at {words}", Place(file, node.lineno))
    if not tree.has(BACKEND):
        return found(False, "this version has one kernel for Gated DeltaNet")
    return not_understood(looked_for)


def _names(test: ast.expr, name: str) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.Name) and node.id == name)
        for node in ast.walk(test)
    )


def _sets(node: ast.If, field: str) -> bool:
    return any(
        (isinstance(child, ast.keyword) and child.arg == field)
        or (isinstance(child, ast.Attribute) and child.attr == field and isinstance(child.ctx, ast.Store))
        for statement in node.body
        for child in ast.walk(statement)
    )


def _assignments(tree: SourceTree, file: str, attribute: str) -> tuple[Place, ...]:
    return tuple(
        Place(file, node.lineno)
        for node in ast.walk(tree.syntax(file))
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store)
    )


def selectors_of(tree: SourceTree) -> Selectors:
    """The selectors of a source that nothing else is known about."""
    stack = Stack(StackKind.SGLANG, "", tree, "a source under a query")
    return Selectors(tree, _gpu(_WORKSTATION), ValuesInForce(_DEFAULTS, {}), Packages(stack))


def _on(base: Selectors, capability: int, **fields: Any) -> Selectors:
    """On a GPU of that capability, with a command that names no kernel but those; its variables stay."""
    values = ValuesInForce({**_DEFAULTS, **fields}, {}, base.values.variables)
    return base.elsewhere(_gpu(capability), values)


def _gpu(capability: int) -> Gpu:
    return next(gpu for gpu in GPUS if gpu.capability == capability)
