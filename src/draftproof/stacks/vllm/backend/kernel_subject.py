"""A command's words about kernels as questions to a version's selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.hardware.shape import Shape
from draftproof.stacks.packages import package
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.attention_kernels import SequenceQuestion
from draftproof.stacks.vllm.backend.kernel_machine import Machine, kernel_evaluator
from draftproof.stacks.vllm.backend.matrix_kernels import MatrixQuestion
from draftproof.stacks.vllm.environment_variables import PREFIX

FLASHINFER = "flashinfer-python"
HUMMING = "humming-kernels"
DEEP_GEMM = "deep-gemm"
VENDORED_DEEP_GEMM = "vllm/third_party/deep_gemm"
_NAMELESS_CAPABILITY = 90
"""For questions whose answer no GPU changes, when none was named."""


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
        environment={name: value for name, value in given.items() if name.startswith(PREFIX)},
        options=options,
    )


def sequence_question(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    shape: Shape,
    given: Mapping[str, str],
    ranks: int,
) -> SequenceQuestion:
    """What the kernels that mix a sequence are asked with.

    Args:
        stack: the version.
        checkpoint: the model.
        situation: the GPU.
        shape: of the model.
        given: options in force, by name.
        ranks: tensor parallel size.
    """
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


def matrix_question(
    sequence: SequenceQuestion, checkpoint: ServedCheckpoint, given: Mapping[str, str]
) -> MatrixQuestion:
    """What the kernels of matrices are asked with, on the same machine."""
    return MatrixQuestion(
        sequence.stack,
        sequence.machine,
        sequence.evaluator,
        _experts(checkpoint, sequence.shape, given, sequence.ranks),
        sequence.shape.hidden,
        sequence.shape.hidden,
        draft_backend=_backend_name(given.get("draft moe_backend", "")),
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
        "expert_parallel": given.get("--enable-expert-parallel") == "true",
        "eplb": given.get("--enable-eplb") == "true",
        "backend": _backend_name(given.get("--moe-backend", "auto")),
        "all2all": given.get("--all2all-backend", "allgather_reducescatter"),
        "sigmoid": section.get("scoring_func") == "sigmoid",
    }


def _backend_name(text: str) -> str:
    return text.lower().replace("-", "_")


def ranks_in(given: Mapping[str, str], otherwise: int) -> int:
    """The tensor parallel size in force."""
    text = given.get("--tensor-parallel-size", "")
    return int(text) if text.isdigit() and int(text) > 0 else otherwise
