"""The command that switches the checkpoint's head on in this version of SGLang.

Each step adds what the version's own resolution shows to be needed, and resolves again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import EnvironmentVariable, LaunchPlan, PlannedFlag
from draftproof.stacks.place import Place
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch.found_quantization import (
    MODELOPT_FP4,
    found_quantization,
    is_modelopt_fp4,
)
from draftproof.stacks.sglang.launch.honesty_findings import declared_variables
from draftproof.stacks.sglang.launch.hybrid_attention import allowed_on_blackwell
from draftproof.stacks.sglang.launch.kernel_findings import BLACKWELL, is_hybrid, preferred
from draftproof.stacks.sglang.launch.launch_defects import has_several_head_layers
from draftproof.stacks.sglang.launch.model_view import context_length
from draftproof.stacks.sglang.launch.options import ArgumentTable, read_arguments
from draftproof.stacks.sglang.launch.required_packages import requirements
from draftproof.stacks.sglang.launch.resolution import Resolution, Resolver
from draftproof.stacks.situation import CacheType, Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack

PROGRAM = ("python", "-m", "sglang.launch_server")
STRATEGIES = ("mamba_radix_cache_strategy", "mamba_scheduler_strategy")
OVERLAP_VARIABLE = "SGLANG_ENABLE_SPEC_V2"
USUAL_REQUESTS = 48


@dataclass(frozen=True)
class _Draft:
    """A command in the making."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, tuple[str, tuple[Place, ...]]] = field(default_factory=dict)
    environment: tuple[EnvironmentVariable, ...] = ()

    def with_value(self, name: str, value: Any, reason: str, *places: Place) -> _Draft:
        return replace(
            self,
            values={**self.values, name: value},
            reasons={**self.reasons, name: (reason, places)},
        )


@dataclass(frozen=True)
class _Planner:
    """What the steps look at."""

    tree: SourceTree
    arguments: ArgumentTable
    checkpoint: ServedCheckpoint
    situation: Situation
    resolve: Callable[[_Draft], Resolution]
    found_quantization: Callable[[_Draft], Reading[str]]

    def has(self, name: str, value: str | None = None) -> bool:
        """The version has the option, and its choices allow the value."""
        declared = self.arguments.of_field(name)
        choices = () if declared is None else declared.option.choices
        return declared is not None and (value is None or not choices or value in choices)

    @property
    def capability(self) -> int:
        """Of the GPU; 0 when none was named."""
        return 0 if self.situation.gpu is None else self.situation.gpu.capability


def plan(stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
    """The command, with a reason for each of its options."""
    name = question_name("sglang-plan", checkpoint, situation)
    kept = remember(
        stack.tree, name, lambda view: _planned(view, stack.tree, checkpoint, situation), LaunchPlan
    )
    return replace(kept, requirements=requirements(stack, situation))


def plan_afresh(stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
    """As `plan`, without kept answers of earlier runs."""
    made = _planned(stack.tree, stack.tree, checkpoint, situation)
    return replace(made, requirements=requirements(stack, situation))


def _planned(
    tree: SourceTree, shared: SourceTree, checkpoint: ServedCheckpoint, situation: Situation
) -> LaunchPlan:
    reading = read_arguments(tree)
    if reading.value is None:
        return LaunchPlan(PROGRAM, (PlannedFlag("--model-path", checkpoint.name, "the checkpoint"),))
    resolver = Resolver(tree, reading.value, checkpoint, shared)
    gpu = situation.gpu or GPUS[0]

    known: dict[str, Resolution] = {}

    def resolve(draft: _Draft) -> Resolution:
        """Steps that change nothing do not pay for another resolution."""
        variables = {entry.name: entry.value for entry in draft.environment}
        key = repr((sorted(draft.values.items()), variables))
        if key not in known:
            known[key] = resolver.resolve(draft.values, variables, gpu)
        return known[key]

    def quantization_of(draft: _Draft) -> Reading[str]:
        set_by_version = resolve(draft).value("quantization")
        return found_quantization(resolver, checkpoint, set_by_version, {}, gpu)

    planner = _Planner(tree, reading.value, checkpoint, situation, resolve, quantization_of)
    draft = _speculation(planner, _basics(planner, _Draft()))
    for step in (_quantization, _state_cache, _overlap, _experts, _attention, _service):
        draft = step(planner, draft)
    return LaunchPlan(PROGRAM, tuple(_flags(planner, draft)), draft.environment)


def _basics(planner: _Planner, draft: _Draft) -> _Draft:
    draft = draft.with_value("model_path", planner.checkpoint.name, "the checkpoint that was looked at")
    revision = planner.checkpoint.revision
    if revision:
        draft = draft.with_value("revision", revision, "the revision that was looked at")
        if planner.has("speculative_draft_model_revision"):
            reason = "the head comes from the same revision; it is not taken over from the target's"
            draft = draft.with_value("speculative_draft_model_revision", revision, reason)
    if planner.situation.tensor_parallel > 1:
        ranks = planner.situation.tensor_parallel
        draft = draft.with_value("tp_size", ranks, f"each layer is split over {ranks} GPUs")
    cache = planner.situation.cache_type
    if cache is not CacheType.AUTO and planner.has("kv_cache_dtype", cache.value):
        draft = draft.with_value("kv_cache_dtype", cache.value, "keys and values as they were asked for")
    if "auto_map" in planner.checkpoint.config:
        draft = draft.with_value("trust_remote_code", True, "the config names code of its own (auto_map)")
    return draft


def _speculation(planner: _Planner, draft: _Draft) -> _Draft:
    drafts = planner.situation.draft_tokens
    several = has_several_head_layers(planner.checkpoint)
    name = "EAGLE" if several else "NEXTN"
    why = (
        "the name under which this version uses every layer of the head"
        if several
        else "the checkpoint's own head"
    )
    draft = draft.with_value("speculative_algorithm", name, f"drafts come from {why}")
    together = "given together with the other two, since a part of the three stops the start"
    draft = draft.with_value(
        "speculative_num_steps", drafts, f"K = {drafts} drafts per verify pass; {together}"
    )
    draft = draft.with_value(
        "speculative_eagle_topk", 1, "one chain of drafts, for which every backend has kernels"
    )
    return draft.with_value(
        "speculative_num_draft_tokens", drafts + 1, f"the {drafts} drafts and the row before them (K + 1)"
    )


def _quantization(planner: _Planner, draft: _Draft) -> _Draft:
    """ModelOpt NVFP4 is named where the version does not find it, and on Blackwell for its other rules."""
    if not is_modelopt_fp4(planner.checkpoint) or not planner.has("quantization", MODELOPT_FP4):
        return draft
    alone = planner.found_quantization(draft)
    if alone.understood and not alone.is_found:
        reason = f"without it this version {alone.sentence}"
        return draft.with_value("quantization", MODELOPT_FP4, reason, *alone.places)
    if planner.capability not in BLACKWELL:
        return draft
    reason = "rules that choose expert kernels look at the option, not at the checkpoint"
    return draft.with_value("quantization", MODELOPT_FP4, reason)


def _state_cache(planner: _Planner, draft: _Draft) -> _Draft:
    """Prefix cache together with recurrent states and speculation needs a buffer for the states."""
    spec = planner.checkpoint.spec
    strategy = next((name for name in STRATEGIES if planner.has(name, "extra_buffer")), None)
    if spec is None or not is_hybrid(spec) or strategy is None:
        return draft
    resolution = planner.resolve(draft)
    if resolution.value(strategy) == "extra_buffer":
        return draft
    places = (resolution.raised.place,) if resolution.raised else resolution.places("disable_radix_cache")
    what = "the start stops" if resolution.raised else "the prefix cache is switched off"
    return draft.with_value(strategy, "extra_buffer", f"without it {what} for recurrent states", *places)


def _overlap(planner: _Planner, draft: _Draft) -> _Draft:
    """Older versions keep the overlap schedule under speculation only when a variable asks for it."""
    place = (declared_variables(planner.tree).value or {}).get(OVERLAP_VARIABLE)
    if place is None or planner.resolve(draft).value("disable_overlap_schedule") is not True:
        return draft
    reason = "keeps the overlap schedule under speculation, which extra_buffer is made for"
    variable = EnvironmentVariable(OVERLAP_VARIABLE, "1", reason, (place,))
    tried = replace(draft, environment=(*draft.environment, variable))
    resolution = planner.resolve(tried)
    helps = resolution.is_complete and resolution.value("disable_overlap_schedule") is False
    return tried if helps else draft


def _experts(planner: _Planner, draft: _Draft) -> _Draft:
    """Consumer Blackwell has no TRT-LLM expert kernels; what is left to auto is named."""
    if planner.capability < 110 or not is_modelopt_fp4(planner.checkpoint):
        return draft
    runner = "flashinfer_cutlass"
    resolution = planner.resolve(draft)
    if not planner.has("moe_runner_backend", runner):
        return draft
    if resolution.value("moe_runner_backend") == runner:
        return draft.with_value(
            "moe_runner_backend", runner, "as the version chooses for this GPU, pinned",
            *resolution.places("moe_runner_backend"),
        )  # fmt: skip
    tried = draft.with_value(
        "moe_runner_backend", runner, "auto leads to TRT-LLM kernels, which this GPU lacks"
    )
    return tried if planner.resolve(tried).is_complete else draft


def _attention(planner: _Planner, draft: _Draft) -> _Draft:
    """On Blackwell hybrid models get a backend that passes the version's assertion, pinned."""
    spec = planner.checkpoint.spec
    if spec is None or not is_hybrid(spec) or planner.capability not in BLACKWELL:
        return draft
    allowed = allowed_on_blackwell(planner.tree, planner.capability)
    resolution = planner.resolve(draft)
    chosen = resolution.value("attention_backend")
    if allowed.value is None or not resolution.is_complete:
        return draft
    if chosen not in allowed.value:
        name = preferred(allowed.value)
        reason = f"the version chooses {chosen}, which its own assertion refuses for this model"
        return draft.with_value("attention_backend", name, reason, *allowed.places)
    places = resolution.places("attention_backend")
    reason = "as the version chooses with these options, pinned for comparisons without speculation"
    tried = draft.with_value("attention_backend", chosen, reason, *places)
    page = resolution.value("page_size")
    if isinstance(page, int) and page > 1:
        tried = tried.with_value(
            "page_size", page, "the backend's own, pinned", *resolution.places("page_size")
        )
    after = planner.resolve(tried)
    same = after.value("attention_backend") == chosen and after.value("page_size") == page
    return tried if after.is_complete and same else draft


def _service(planner: _Planner, draft: _Draft) -> _Draft:
    requests = max(planner.situation.concurrency, USUAL_REQUESTS)
    resolution = planner.resolve(draft)
    cut = resolution.value("max_running_requests")
    reason = (
        f"speculation sets {cut} where nothing is given" if cut else "the number of requests that run at once"
    )
    draft = draft.with_value(
        "max_running_requests", requests, reason, *resolution.places("max_running_requests")
    )
    longest = context_length(planner.checkpoint)
    asked = planner.situation.context
    if longest is not None and asked < longest:
        draft = draft.with_value("context_length", asked, "the context that was asked for")
    draft = draft.with_value("host", "127.0.0.1", "reachable from this machine only")
    return draft.with_value("port", 30000, "SGLang's usual port")


def _flags(planner: _Planner, draft: _Draft) -> Iterator[PlannedFlag]:
    for name, value in draft.values.items():
        declared = planner.arguments.of_field(name)
        if declared is None:
            continue
        reason, places = draft.reasons[name]
        words = None if value is True else str(value)
        yield PlannedFlag(declared.option.name, words, reason, (*places, declared.option.place))
