"""Link 5 for SGLang: which kernels this version chooses for a checkpoint, on a GPU, with a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftproof.errors import SourceError
from draftproof.hardware.gpu_table import GPUS
from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice
from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import LaunchJudgement
from draftproof.stacks.module_groups import ModuleGroup
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.backend.attention_kernels import AttentionQuestion, attention_choices
from draftproof.stacks.sglang.backend.backend_defects import BACKEND_DEFECTS, shown_defects
from draftproof.stacks.sglang.backend.delta_net import delta_net_choices
from draftproof.stacks.sglang.backend.dense_kernels import dense_choice
from draftproof.stacks.sglang.backend.expert_kernels import expert_choice
from draftproof.stacks.sglang.backend.kernel_groups import kernel_groups
from draftproof.stacks.sglang.backend.kernel_packages import Packages
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.backend.state_copies import no_state, state_copies
from draftproof.stacks.sglang.launch.in_force import ValuesInForce, in_force
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack

_NAMELESS_CAPABILITY = 90
"""Of the GPU that states are counted for when none was named; they do not depend on it."""


@dataclass(frozen=True)
class _SeenDefect:
    """What the query of a known defect saw."""

    identifier: str
    present: Reading[bool]


@dataclass(frozen=True)
class _Kept:
    """What is kept of an answer."""

    choices: tuple[KernelChoice, ...]
    layout: Reading[StateLayout]
    defects: tuple[_SeenDefect, ...]


def backends(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement
) -> BackendFacts:
    """The kernels, the layout of states, and what must be installed."""
    values = in_force(judgement.resolved)
    if not values.values:
        sentence = "the command's values in force are not known: link 4 did not resolve it"
        return BackendFacts((), not_understood(sentence))
    groups = kernel_groups(checkpoint)
    resolved = judgement.resolved
    name = question_name(
        "sglang-backends",
        checkpoint,
        situation,
        resolved.options,
        resolved.variables,
        stack.beside,
        stack.requires,
        groups,
    )
    try:
        kept = remember(
            stack.tree,
            name,
            lambda view: _found(replace(stack, tree=view), checkpoint, situation, values, groups),
            _Kept,
        )
    except SourceError as error:
        return BackendFacts((), not_understood(str(error)))
    return BackendFacts(kept.choices, kept.layout, defects=tuple(_findings(kept.defects)))


def _findings(seen: Iterable[_SeenDefect]) -> Iterator[DefectFinding]:
    """The kept readings with the rules that they belong to, by name: rules themselves cannot be kept."""
    defects = {entry.defect.identifier: entry.defect for entry in BACKEND_DEFECTS}
    for entry in seen:
        yield DefectFinding(defects[entry.identifier], entry.present, True)


def _found(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    values: ValuesInForce,
    groups: tuple[ModuleGroup, ...],
) -> _Kept:
    gpu = situation.gpu or next(each for each in GPUS if each.capability == _NAMELESS_CAPABILITY)
    selectors = Selectors(stack.tree, gpu, values, Packages(stack))
    layout = layout_of(selectors, checkpoint)
    choices = kernels_of(selectors, checkpoint, groups) if situation.gpu is not None else ()
    shown = shown_defects(checkpoint, situation, values)
    return _Kept(
        choices, layout, tuple(_SeenDefect(entry.defect.identifier, entry.look(selectors)) for entry in shown)
    )


def layout_of(selectors: Selectors, checkpoint: ServedCheckpoint) -> Reading[StateLayout]:
    """How the recurrent state is kept."""
    if not is_hybrid(checkpoint):
        return no_state()
    return state_copies(selectors, checkpoint.config, _has_draft(selectors))


def kernels_of(
    selectors: Selectors, checkpoint: ServedCheckpoint, groups: tuple[ModuleGroup, ...]
) -> tuple[KernelChoice, ...]:
    """The kernels, in the order of a step."""
    return tuple(_choices(selectors, checkpoint, groups, _has_draft(selectors)))


def _has_draft(selectors: Selectors) -> bool:
    return selectors.values.values.get("speculative_algorithm") is not None


def _choices(
    selectors: Selectors,
    checkpoint: ServedCheckpoint,
    groups: tuple[ModuleGroup, ...],
    has_draft: bool,
) -> Iterator[KernelChoice]:
    known: dict[ModuleGroup, KernelChoice] = {}
    for group in groups:
        if group.is_draft and not has_draft:
            continue
        alike = replace(group, name="", is_draft=group.is_draft and group.is_expert, is_promised=False)
        if alike not in known:
            known[alike] = (
                expert_choice(selectors, group) if group.is_expert else dense_choice(selectors, group)
            )
        yield replace(known[alike], group=group.name, is_promised=group.is_promised)
    question = AttentionQuestion(
        selectors, is_latent(checkpoint), is_hybrid(checkpoint), checkpoint.architecture, has_draft
    )
    yield from attention_choices(question)
    if is_hybrid(checkpoint):
        yield from delta_net_choices(selectors, checkpoint.config, has_draft)


def is_hybrid(checkpoint: ServedCheckpoint) -> bool:
    """Gated DeltaNet layers stand between the attention layers."""
    return isinstance(_text(checkpoint).get("linear_num_value_heads"), int)


def is_latent(checkpoint: ServedCheckpoint) -> bool:
    """Attention with one compressed key and value for all heads."""
    return isinstance(_text(checkpoint).get("kv_lora_rank"), int)


def _text(checkpoint: ServedCheckpoint) -> Mapping[str, Any]:
    text = checkpoint.config.get("text_config")
    return text if isinstance(text, Mapping) else checkpoint.config
