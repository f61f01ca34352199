"""Link 5 for vLLM: which kernels this version chooses for a checkpoint on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.errors import SourceError
from draftproof.hardware.shape import Shape, shape_of
from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.launch_facts import LaunchJudgement
from draftproof.stacks.reading import not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.attention_kernels import SequenceQuestion, attention_choices, gated_delta_choices
from draftproof.stacks.vllm.backend_defects import backend_defects
from draftproof.stacks.vllm.kernel_machine import Machine, kernel_evaluator
from draftproof.stacks.vllm.matrix_kernels import MatrixQuestion, matrix_choices
from draftproof.stacks.vllm.module_groups import module_groups
from draftproof.stacks.vllm.packages import package
from draftproof.stacks.vllm.state_layout import CacheWishes, state_layout

FLASHINFER = "flashinfer-python"
HUMMING = "humming-kernels"
DEEP_GEMM = "deep-gemm"
VENDORED_DEEP_GEMM = "vllm/third_party/deep_gemm"
_NAMELESS_CAPABILITY = 90


def backends(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement
) -> BackendFacts:
    """The kernels, the state layout and the requirements."""
    defects = backend_defects(stack, checkpoint, situation)
    if checkpoint.spec is None:
        sentence = f"the shapes of {checkpoint.architecture or 'this architecture'} are not known"
        return BackendFacts((), not_understood(sentence), defects=defects)
    try:
        return _backends(stack, checkpoint, situation, judgement, defects)
    except SourceError as error:
        return BackendFacts((), not_understood(str(error)), defects=defects)


def _backends(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement, defects: Any
) -> BackendFacts:
    assert checkpoint.spec is not None
    shape = shape_of(checkpoint.spec)
    given = {name: value for name, value, _ in judgement.resolved.options}
    ranks = _number(given.get("--tensor-parallel-size"), situation.tensor_parallel)
    sequence = _sequence(stack, checkpoint, situation, shape, given, ranks)
    layout = state_layout(sequence, _wishes(given, judgement, situation))
    if situation.gpu is None:
        return BackendFacts((), layout, defects=defects)
    experts = _experts(checkpoint, shape, given, ranks)
    rows = shape.hidden
    matrices = MatrixQuestion(
        stack,
        sequence.machine,
        experts,
        rows,
        rows,
        draft_backend=given.get("draft moe_backend", ""),
    )
    choices = (
        *matrix_choices(matrices, module_groups(checkpoint)),
        *attention_choices(sequence),
        *gated_delta_choices(sequence),
    )
    return BackendFacts(choices, layout, defects=defects)


def machine_for(stack: Stack, situation: Situation, given: Mapping[str, str]) -> Machine:
    """The GPU with the packages that are, or will be, beside the stack."""
    library = package(stack, FLASHINFER).counts_as_present
    vendored = bool(stack.tree.walk(VENDORED_DEEP_GEMM))
    options = {
        "linear_backend": given.get("--linear-backend", "auto"),
        "moe_backend": given.get("--moe-backend", "auto"),
    }
    return Machine(
        capability=situation.gpu.capability if situation.gpu is not None else _NAMELESS_CAPABILITY,
        has_flashinfer=library is not False,
        has_humming=package(stack, HUMMING).counts_as_present is True,
        has_deep_gemm=vendored or package(stack, DEEP_GEMM).counts_as_present is True,
        options=options,
    )


def _sequence(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    shape: Shape,
    given: Mapping[str, str],
    ranks: int,
) -> SequenceQuestion:
    machine = machine_for(stack, situation, given)
    text = checkpoint.config.get("text_config")
    return SequenceQuestion(
        stack=stack,
        machine=machine,
        evaluator=kernel_evaluator(stack.tree, machine),
        shape=shape,
        text=text if isinstance(text, dict) else checkpoint.config,
        ranks=ranks,
        cache=given.get("--kv-cache-dtype", "auto"),
        asked=(given.get("--attention-backend", ""), given.get("draft attention_backend", "")),
        prefill=given.get("--gdn-prefill-backend", ""),
    )


def _experts(
    checkpoint: ServedCheckpoint, shape: Shape, given: Mapping[str, str], ranks: int
) -> dict[str, Any]:
    if shape.experts is None:
        return {}
    text = checkpoint.config.get("text_config")
    section = text if isinstance(text, dict) else checkpoint.config
    return {
        "hidden": shape.hidden,
        "intermediate": shape.experts.intermediate_size,
        "experts": shape.experts.num_experts,
        "per_token": shape.experts.experts_per_token,
        "ranks": ranks,
        "expert_parallel": "--enable-expert-parallel" in given and given["--enable-expert-parallel"] == "true",
        "eplb": given.get("--enable-eplb") == "true",
        "backend": _backend_name(given.get("--moe-backend", "auto")),
        "all2all": given.get("--all2all-backend", "allgather_reducescatter"),
        "sigmoid": section.get("scoring_func") == "sigmoid",
    }


def _backend_name(text: str) -> str:
    return text.lower().replace("-", "_")


def _wishes(given: Mapping[str, str], judgement: LaunchJudgement, situation: Situation) -> CacheWishes:
    caching = None
    if given.get("--no-enable-prefix-caching") == "true":
        caching = False
    elif given.get("--enable-prefix-caching") == "true":
        caching = True
    drafts = judgement.resolved.draft_tokens.value
    return CacheWishes(
        caching,
        given.get("--mamba-ssm-cache-dtype", "auto"),
        situation.draft_tokens if drafts is None else drafts,
    )


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdigit() and int(text) > 0 else otherwise
