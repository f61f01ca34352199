"""Kernels that a command asks for by name, and whether this version lets them run on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.backend_facts import KernelChoice, Operation, Phase
from draftproof.stacks.launch_facts import LaunchFinding, ResolvedLaunch, Ruling
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.backends import found_kernels

CHECK = "backend-fits-gpu"
_EXPERTS, _LINEAR, _ATTENTION, _PREFILL = (
    "--moe-backend",
    "--linear-backend",
    "--attention-backend",
    "--gdn-prefill-backend",
)
_DRAFT_EXPERTS, _DRAFT_ATTENTION = "draft moe_backend", "draft attention_backend"


def backend_findings(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    resolved: ResolvedLaunch,
) -> Iterator[LaunchFinding]:
    """One finding for each kernel that is asked for by name and concerns the checkpoint."""
    given = {name: value for name, value, why in resolved.options if why.startswith("given")}
    asked = [
        name
        for name in (_EXPERTS, _LINEAR, _ATTENTION, _PREFILL, _DRAFT_EXPERTS, _DRAFT_ATTENTION)
        if given.get(name, "auto").lower() != "auto"
    ]
    if not asked or situation.gpu is None or checkpoint.spec is None:
        return
    try:
        choices = found_kernels(stack, checkpoint, situation, resolved).choices
    except SourceError as error:
        for name in asked:
            yield _unknown(name, given[name], str(error))
        return
    for name in asked:
        yield from _findings(name, given[name], choices, situation)


def _findings(
    name: str, value: str, choices: tuple[KernelChoice, ...], situation: Situation
) -> Iterator[LaunchFinding]:
    concerned = [choice for choice in choices if _concerns(name, choice)]
    refused = [choice for choice in concerned if choice.valid.value is False]
    lost = [choice for choice in concerned if not choice.valid.understood]
    gpu = situation.gpu.architecture if situation.gpu is not None else "the GPU"
    claim = f"The kernels that are asked for by name run on {gpu}, for this checkpoint's precision."
    subject = f"{name} {value}"
    expected = "the conditions of the kernel's own class hold"
    if refused:
        choice = refused[0]
        observed = f"for {choice.group}: {choice.valid.sentence}"
        remedy = f"leave {name} out, or ask for one whose conditions admit {gpu}"
        yield LaunchFinding(
            CHECK, subject, Ruling.BREAKS, claim, expected, observed, remedy, choice.valid.places
        )
    elif lost:
        yield LaunchFinding(
            CHECK, subject, Ruling.UNKNOWN, claim, expected, lost[0].valid.sentence, "", lost[0].valid.places
        )
    elif concerned:
        ignored = [choice for choice in concerned if not _is_answer(value, choice.backend.value or "")]
        observed = "they hold"
        if len(ignored) == len(concerned):
            observed = f"the version takes {ignored[0].backend.value} instead"
        ruling = Ruling.WARNS if len(ignored) == len(concerned) else Ruling.HOLDS
        yield LaunchFinding(
            CHECK, subject, ruling, claim, expected, observed, "", concerned[0].backend.places
        )


def _concerns(name: str, choice: KernelChoice) -> bool:
    is_draft = choice.group.startswith("MTP") or choice.phase is Phase.DRAFT
    return {
        _EXPERTS: choice.operation is Operation.EXPERT_GEMM,
        _LINEAR: choice.operation is Operation.DENSE_GEMM,
        _ATTENTION: choice.operation is Operation.ATTENTION,
        _PREFILL: choice.operation is Operation.GATED_DELTA_NET and choice.phase is Phase.PREFILL,
        _DRAFT_EXPERTS: choice.operation is Operation.EXPERT_GEMM and is_draft,
        _DRAFT_ATTENTION: choice.operation is Operation.ATTENTION and is_draft,
    }[name]


def _is_answer(asked: str, chosen: str) -> bool:
    """Whether a kernel's name is what was asked for, "_" and capitals left out."""
    wanted = asked.lower().replace("_", "").replace("-", "")
    folded = chosen.lower().replace("_", "").replace("-", "")
    return wanted in folded or wanted.removesuffix("attn") in folded


def _unknown(name: str, value: str, reason: str) -> LaunchFinding:
    return LaunchFinding(
        CHECK,
        f"{name} {value}",
        Ruling.UNKNOWN,
        "The kernels that are asked for by name run on the GPU.",
        "the conditions of the kernel's own class hold",
        reason,
    )
