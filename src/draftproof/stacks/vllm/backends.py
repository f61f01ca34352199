"""Link 5 for vLLM: which kernels this version chooses for a checkpoint on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from draftproof.errors import SourceError
from draftproof.hardware.shape import shape_of
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, StateLayout
from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.attention_kernels import attention_choices, gated_delta_choices
from draftproof.stacks.vllm.backend_defects import backend_defects
from draftproof.stacks.vllm.kernel_subject import matrix_question, ranks_in, sequence_question
from draftproof.stacks.vllm.matrix_kernels import matrix_choices
from draftproof.stacks.vllm.module_groups import ModuleGroup, module_groups
from draftproof.stacks.vllm.state_layout import CacheWishes, state_layout


@dataclass(frozen=True)
class _Found:
    """What is kept of an answer."""

    choices: tuple[KernelChoice, ...]
    layout: Reading[StateLayout]


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
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    judgement: LaunchJudgement,
    defects: tuple[DefectFinding, ...],
) -> BackendFacts:
    groups = module_groups(checkpoint)
    resolved = judgement.resolved
    name = question_name(
        "vllm-backends",
        checkpoint,
        situation,
        resolved.options,
        resolved.draft_tokens.value,
        stack.beside,
        stack.requires,
        groups,
    )
    kept = remember(
        stack.tree,
        name,
        lambda view: _found(replace(stack, tree=view), checkpoint, situation, resolved, groups),
        _Found,
    )
    return BackendFacts(kept.choices, kept.layout, defects=defects)


def _found(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    resolved: ResolvedLaunch,
    groups: tuple[ModuleGroup, ...],
) -> _Found:
    assert checkpoint.spec is not None
    given = {name: value for name, value, _ in resolved.options}
    ranks = ranks_in(given, situation.tensor_parallel)
    sequence = sequence_question(stack, checkpoint, situation, shape_of(checkpoint.spec), given, ranks)
    layout = state_layout(sequence, _wishes(given, resolved, situation))
    if situation.gpu is None:
        return _Found((), layout)
    choices = (
        *matrix_choices(matrix_question(sequence, checkpoint, given), groups),
        *attention_choices(sequence),
        *gated_delta_choices(sequence),
    )
    return _Found(choices, layout)


def _wishes(given: Mapping[str, str], resolved: ResolvedLaunch, situation: Situation) -> CacheWishes:
    caching = None
    if given.get("--no-enable-prefix-caching") == "true":
        caching = False
    elif given.get("--enable-prefix-caching") == "true":
        caching = True
    drafts = resolved.draft_tokens.value
    return CacheWishes(
        caching,
        given.get("--mamba-ssm-cache-dtype", "auto"),
        situation.draft_tokens if drafts is None else drafts,
    )
