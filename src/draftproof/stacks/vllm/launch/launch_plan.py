"""The command that switches the checkpoint's head on in this version of vLLM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import EnvironmentVariable, LaunchPlan, Option, PlannedFlag, Requirement
from draftproof.stacks.packages import Presence, package, required_version
from draftproof.stacks.place import Place
from draftproof.stacks.question import question_name
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import CacheType, Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.environment_variables import known_variables
from draftproof.stacks.vllm.launch.declared_options import DeclaredOptions
from draftproof.stacks.vllm.launch.loading_guard import OPTION as GUARD_OPTION
from draftproof.stacks.vllm.launch.loading_guard import VALUE as GUARD_VALUE
from draftproof.stacks.vllm.launch.loading_guard import guard, is_quantised
from draftproof.stacks.vllm.launch.option_reading import read_options
from draftproof.stacks.vllm.launch.options import speculative_keys
from draftproof.stacks.vllm.launch.parallel_options import TENSOR_PARALLEL
from draftproof.stacks.vllm.launch.special_keys import has_recurrent_layers
from draftproof.stacks.vllm.launch.speculative_request import CONFIG

PROGRAM = ("vllm", "serve")
FLASHINFER = "flashinfer-python"
HUMMING = "humming-kernels"
GDN_PREFILL = "--gdn-prefill-backend"
MAX_LENGTH = "--max-model-len"
REVISION = "--revision"
CACHE_TYPE = "--kv-cache-dtype"
SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
_KERNELS_OF = {
    FLASHINFER: "kernels for NVFP4, attention, Gated DeltaNet and sampling are taken from it",
    HUMMING: "weight-only kernels are taken from it",
}


def plan(stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
    """The command, with a reason for each of its words."""
    name = question_name("vllm-plan", checkpoint, situation, stack.beside, stack.requires, stack.version)
    return remember(
        stack.tree, name, lambda view: _planned(replace(stack, tree=view), checkpoint, situation), LaunchPlan
    )


def _planned(stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
    options = read_options(stack.tree).value or DeclaredOptions(())
    flags = (
        PlannedFlag(checkpoint.name, None, "the checkpoint that was looked at"),
        *_revision(options, checkpoint),
        *_parallel(options, situation),
        *_speculation(stack, options, checkpoint, situation),
        *_length(options, situation),
        *_cache(options, situation),
        *_guard(stack, options, checkpoint),
        *_prefill(stack, options, checkpoint),
    )
    return LaunchPlan(PROGRAM, flags, tuple(_environment(stack)), tuple(_requirements(stack)))


def _places(option: Option | None) -> tuple[Place, ...]:
    return (option.place,) if option is not None else ()


def _option(options: DeclaredOptions, name: str) -> Option | None:
    declared = options.get(name)
    return declared.option if declared is not None else None


def _parallel(options: DeclaredOptions, situation: Situation) -> Iterator[PlannedFlag]:
    if situation.tensor_parallel > 1:
        option = _option(options, TENSOR_PARALLEL)
        ranks = str(situation.tensor_parallel)
        reason = f"every layer is split over the {ranks} GPUs"
        yield PlannedFlag(TENSOR_PARALLEL, ranks, reason, _places(option))


def _revision(options: DeclaredOptions, checkpoint: ServedCheckpoint) -> Iterator[PlannedFlag]:
    if checkpoint.revision:
        reason = "the revision that was looked at"
        yield PlannedFlag(REVISION, checkpoint.revision, reason, _places(_option(options, REVISION)))


def _speculation(
    stack: Stack, options: DeclaredOptions, checkpoint: ServedCheckpoint, situation: Situation
) -> Iterator[PlannedFlag]:
    keys = speculative_keys(stack.tree).value
    field = keys.get("method") if keys is not None else None
    wanted: dict[str, str | int] = {"method": "mtp", "num_speculative_tokens": situation.draft_tokens}
    if checkpoint.revision and keys is not None and keys.get("revision") is not None:
        # vLLM does not take the target's over: the head would come from the default revision.
        wanted["revision"] = checkpoint.revision
    value = json.dumps(wanted)
    places = (*((field.place,) if field is not None else ()), *_places(_option(options, CONFIG)))
    reason = (
        f"the head drafts {situation.draft_tokens} tokens a pass; without it vLLM drops the head's weights "
        "silently, and without num_speculative_tokens it does not start"
    )
    yield PlannedFlag(CONFIG, value, reason, places)


def _length(options: DeclaredOptions, situation: Situation) -> Iterator[PlannedFlag]:
    option = _option(options, MAX_LENGTH)
    if option is not None:
        reason = "the context that was asked for; left out, memory for the checkpoint's longest is demanded"
        yield PlannedFlag(MAX_LENGTH, str(situation.context), reason, _places(option))


def _cache(options: DeclaredOptions, situation: Situation) -> Iterator[PlannedFlag]:
    option = _option(options, CACHE_TYPE)
    if option is not None and situation.cache_type is not CacheType.AUTO:
        reason = "keys and values as they were asked for"
        yield PlannedFlag(CACHE_TYPE, situation.cache_type.value, reason, _places(option))


def _guard(stack: Stack, options: DeclaredOptions, checkpoint: ServedCheckpoint) -> Iterator[PlannedFlag]:
    known = guard(stack.tree)
    option = _option(options, GUARD_OPTION)
    if known.is_found and option is not None and is_quantised(checkpoint):
        reason = "a parameter that no tensor is written to stops the start; off for quantised checkpoints"
        yield PlannedFlag(GUARD_OPTION, GUARD_VALUE, reason, (*known.places, *_places(option)))


def _prefill(stack: Stack, options: DeclaredOptions, checkpoint: ServedCheckpoint) -> Iterator[PlannedFlag]:
    """The kernel that is in the stack itself, where the package that it would take another from is absent."""
    option = _option(options, GDN_PREFILL)
    if option is None or not has_recurrent_layers(checkpoint) or "triton" not in option.choices:
        return
    library = package(stack, FLASHINFER)
    if library.presence is Presence.ABSENT:
        reason = f"{library.words}, and vLLM would choose its kernel without looking"
        yield PlannedFlag(GDN_PREFILL, "triton", reason, _places(option))


def _environment(stack: Stack) -> Iterator[EnvironmentVariable]:
    library = package(stack, FLASHINFER)
    known = known_variables(stack.tree).value or {}
    if library.presence is Presence.ABSENT and SAMPLER in known:
        reason = f"{library.words}, and the sampler would import it"
        yield EnvironmentVariable(SAMPLER, "0", reason, (known[SAMPLER],))


def _requirements(stack: Stack) -> Iterator[Requirement]:
    """The stack itself, and the packages that its kernels come from."""
    version = f"=={stack.version}" if stack.version else ""
    yield Requirement(
        "vllm",
        version,
        "the server",
        stack.beside is not None or None,
        f"pip install 'vllm{version}'",
    )
    for name, reason in _KERNELS_OF.items():
        asked = required_version(stack, name)
        if asked is None:
            continue
        present = None if stack.beside is None else stack.installed_version(name) is not None
        yield Requirement(name, asked, reason, present, f"pip install '{name}{asked}'")
