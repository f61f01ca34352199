"""Link 5 for vLLM: which kernels this version chooses for a checkpoint on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.errors import SourceError
from draftproof.hardware.shape import shape_of
from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.launch_facts import LaunchJudgement
from draftproof.stacks.reading import not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.attention_kernels import attention_choices, gated_delta_choices
from draftproof.stacks.vllm.backend_defects import backend_defects
from draftproof.stacks.vllm.kernel_subject import matrix_question, ranks_in, sequence_question
from draftproof.stacks.vllm.matrix_kernels import matrix_choices
from draftproof.stacks.vllm.module_groups import module_groups
from draftproof.stacks.vllm.state_layout import CacheWishes, state_layout


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
    assert checkpoint.spec is not None
    shape = shape_of(checkpoint.spec)
    given = {name: value for name, value, _ in judgement.resolved.options}
    sequence = sequence_question(
        stack, checkpoint, situation, shape, given, ranks_in(given, situation.tensor_parallel)
    )
    layout = state_layout(sequence, _wishes(given, judgement, situation))
    if situation.gpu is None:
        return BackendFacts((), layout, defects=defects)
    matrices = matrix_question(sequence, checkpoint, given)
    choices = (
        *matrix_choices(matrices, module_groups(checkpoint)),
        *attention_choices(sequence),
        *gated_delta_choices(sequence),
    )
    return BackendFacts(choices, layout, defects=defects)


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
