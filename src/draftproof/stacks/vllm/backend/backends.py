"""Link 5 for vLLM: which kernels this version chooses for a checkpoint on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from draftproof.errors import SourceError
from draftproof.hardware.shape import shape_of
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, StateLayout
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.module_groups import ModuleGroup, module_groups
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.attention_kernels import attention_choices, gated_delta_choices
from draftproof.stacks.vllm.backend.backend_defects import backend_defects
from draftproof.stacks.vllm.backend.kernel_subject import matrix_question, ranks_in, sequence_question
from draftproof.stacks.vllm.backend.matrix_kernels import matrix_choices
from draftproof.stacks.vllm.backend.state_layout import CacheWishes, state_layout


@dataclass(frozen=True)
class FoundKernels:
    """What follows from a source and the values in force.

    Attributes:
        choices: the kernels; none when no GPU was named.
        layout: of the recurrent state.
    """

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
        found = found_kernels(stack, checkpoint, situation, judgement.resolved)
    except SourceError as error:
        return BackendFacts((), not_understood(str(error)), defects=defects)
    return BackendFacts(found.choices, found.layout, defects=defects)


def found_kernels(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, resolved: ResolvedLaunch
) -> FoundKernels:
    """The kernels and the state layout that values in force lead to; kept as long as the source is the same.

    Raises:
        SourceError: a file that decides cannot be read.
    """
    groups = module_groups(checkpoint)
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
    return remember(
        stack.tree,
        name,
        lambda view: _found(replace(stack, tree=view), checkpoint, situation, resolved, groups),
        FoundKernels,
    )


def _found(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    resolved: ResolvedLaunch,
    groups: tuple[ModuleGroup, ...],
) -> FoundKernels:
    assert checkpoint.spec is not None
    given = {name: value for name, value, _ in resolved.options}
    ranks = ranks_in(given, situation.tensor_parallel)
    sequence = sequence_question(stack, checkpoint, situation, shape_of(checkpoint.spec), given, ranks)
    layout = state_layout(sequence, _wishes(given, resolved, situation))
    if situation.gpu is None:
        return FoundKernels((), layout)
    choices = (
        *matrix_choices(matrix_question(sequence, checkpoint, given), groups),
        *attention_choices(sequence),
        *gated_delta_choices(sequence),
    )
    return FoundKernels(choices, layout)


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
