"""Judges a launch command by what this version of vLLM does with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.command.command import Command
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, ResolvedLaunch, Ruling
from draftproof.stacks.parallel_findings import division_findings, rank_findings
from draftproof.stacks.place import Place
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading, absent, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack, StackKind
from draftproof.stacks.vllm.backend.kernel_subject import ranks_in
from draftproof.stacks.vllm.environment_variables import PREFIX, environment_findings
from draftproof.stacks.vllm.launch.activation import Activation, activation
from draftproof.stacks.vllm.launch.backend_findings import backend_findings
from draftproof.stacks.vllm.launch.declared_options import DeclaredOptions
from draftproof.stacks.vllm.launch.flag_findings import bound_to, flag_findings
from draftproof.stacks.vllm.launch.launch_defects import launch_defects
from draftproof.stacks.vllm.launch.loading_guard import guard_findings
from draftproof.stacks.vllm.launch.lossy_switches import lossless_finding
from draftproof.stacks.vllm.launch.model_findings import length_findings, model_findings, weights_findings
from draftproof.stacks.vllm.launch.option_reading import read_options
from draftproof.stacks.vllm.launch.options import SpeculativeKeys, speculative_keys
from draftproof.stacks.vllm.launch.parallel_options import TENSOR_PARALLEL, ranks_given, ranks_of
from draftproof.stacks.vllm.launch.request_limits import admission_change, limit_findings
from draftproof.stacks.vllm.launch.special_keys import special_findings
from draftproof.stacks.vllm.launch.speculation_findings import (
    Speculation,
    resolved_speculation,
    speculation_findings,
)
from draftproof.stacks.vllm.launch.speculative_findings import key_findings
from draftproof.stacks.vllm.launch.speculative_request import SpeculativeRequest, speculative_request

_IN_FORCE = (
    "--kv-cache-dtype", "--attention-backend", "--moe-backend", "--linear-backend", "--gdn-prefill-backend",
    "--quantization", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--block-size",
    "--enable-prefix-caching", "--no-enable-prefix-caching", "--mamba-ssm-cache-dtype", "--mamba-cache-mode",
    "--mamba-cache-dtype", "--tensor-parallel-size", "--data-parallel-size", "--enable-expert-parallel",
    "--all2all-backend", "--enable-eplb", "--gpu-memory-utilization",
)  # fmt: skip
"""Options whose values the kernels, the state and the memory depend on."""


@dataclass(frozen=True)
class _Judged:
    """The part of a judgement that follows from source, configs and command alone, and is kept."""

    findings: tuple[LaunchFinding, ...]
    resolved: ResolvedLaunch
    ranks_places: tuple[Place, ...] = ()


def judge(
    stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> LaunchJudgement:
    """What is to say about a command, flag by flag, and what is in force after vLLM's own resolution."""
    name = question_name("vllm-launch", checkpoint, situation, command)
    kept = remember(
        stack.tree,
        name,
        lambda view: _judged(replace(stack, tree=view), checkpoint, situation, command),
        _Judged,
    )
    # Apart from the rest, since they follow from the tensors too.
    findings = (
        *kept.findings,
        *_divisions(checkpoint, kept),
        *backend_findings(stack, checkpoint, situation, kept.resolved),
    )
    return LaunchJudgement(findings, kept.resolved, launch_defects(stack.tree, checkpoint, situation))


def _divisions(checkpoint: ServedCheckpoint, judged: _Judged) -> Iterator[LaunchFinding]:
    given = {name: value for name, value, _ in judged.resolved.options}
    ranks = ranks_in(given, 1)
    subject = f"{TENSOR_PARALLEL} {ranks}"
    return division_findings(checkpoint, ranks, subject, TENSOR_PARALLEL, judged.ranks_places)


def _judged(stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command) -> _Judged:
    options = read_options(stack.tree)
    keys = speculative_keys(stack.tree)
    if options.value is None or keys.value is None:
        lost: Reading[str] = not_understood(
            (options if options.value is None else keys).sentence, *(options.places or keys.places)
        )
        return _Judged(tuple(_lost(lost)), _nothing(lost))
    bound = bound_to(command, options.value)
    request = speculative_request(bound)
    result = _result(stack, checkpoint, situation, bound, request, keys.value)
    speculation = Speculation(request, keys.value, result)
    findings = (
        *_other_stack(command, stack),
        *environment_findings(command, stack.tree, stack.label),
        *flag_findings(bound, options.value),
        *model_findings(bound, checkpoint),
        *weights_findings(bound),
        *length_findings(bound, checkpoint, stack.tree),
        *_speculation(stack, checkpoint, bound, speculation),
        *rank_findings(ranks_given(bound), situation),
        *guard_findings(bound, options.value, checkpoint, stack.tree),
    )
    in_force = tuple(_in_force(bound, options.value, request))
    resolved = resolved_speculation(speculation, in_force, tuple(_changed(stack, request)))
    declared = options.value.get(TENSOR_PARALLEL)
    return _Judged(findings, resolved, (declared.option.place,) if declared is not None else ())


def _lost(reading: Reading[str]) -> Iterator[LaunchFinding]:
    yield LaunchFinding(
        "option-exists",
        "",
        Ruling.UNKNOWN,
        "Every option of the command exists in this version.",
        "the options of this version",
        reading.sentence,
        "",
        reading.places,
    )


def _nothing(reading: Reading[str]) -> ResolvedLaunch:
    return ResolvedLaunch(reading, not_understood(reading.sentence, *reading.places), reading)


def _result(
    stack: Stack,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    bound: BoundCommand,
    request: SpeculativeRequest,
    keys: SpeculativeKeys,
) -> Reading[Activation]:
    """The resolution of what was asked; only keys that the class has reach it."""
    if not request.is_given:
        return absent("no speculation is asked for", keys.place)
    if not request.is_readable:
        return absent("the speculative configuration is no JSON object", keys.place)
    refused = next((f for f in key_findings(request, keys) if f.ruling is Ruling.BREAKS), None)
    if refused is not None:
        return absent(f"the configuration is refused: {refused.subject}: {refused.observed}", keys.place)
    length = situation.context
    return activation(stack.tree, checkpoint, keys, request.values, ranks_of(bound), length)


def _speculation(
    stack: Stack, checkpoint: ServedCheckpoint, bound: BoundCommand, speculation: Speculation
) -> Iterator[LaunchFinding]:
    request, keys = speculation.request, speculation.keys
    if not request.is_given:
        return
    yield from request.findings
    yield from key_findings(request, keys)
    yield from speculation_findings(speculation)
    yield from special_findings(request.values, keys, stack.tree, checkpoint)
    yield from lossless_finding(request.values, keys, stack.tree)
    yield from limit_findings(stack.tree)
    revision = bound.given("--revision")
    if revision is not None and "revision" not in request.values:
        yield _revision(str(revision.flag), speculation)


def _revision(subject: str, speculation: Speculation) -> LaunchFinding:
    field = speculation.keys.get("revision")
    outcome = speculation.result.value
    return LaunchFinding(
        "draft-revision",
        subject,
        Ruling.WARNS,
        "Target and head are read from the same revision.",
        '"revision" in the speculative configuration too',
        "the draft's configuration takes its revision from the speculative configuration alone, so that the "
        "head is read from the default one",
        f'add "revision" to the speculative configuration, beside {subject}',
        (*((field.place,) if field else ()), *(outcome.places if outcome else ())),
    )


def _other_stack(command: Command, stack: Stack) -> Iterator[LaunchFinding]:
    if command.stack is None:
        return
    same = command.stack is StackKind.VLLM
    yield LaunchFinding(
        "stack-agrees",
        " ".join(command.program),
        Ruling.HOLDS if same else Ruling.BREAKS,
        f"The command starts {stack.kind.title}.",
        "vllm serve, or python -m vllm.entrypoints.openai.api_server",
        f"it starts {command.stack.title}",
        "" if same else "give a vLLM command, or name that stack with --stack",
    )


def _in_force(
    bound: BoundCommand, options: DeclaredOptions, request: SpeculativeRequest
) -> Iterator[tuple[str, str, str]]:
    for variable in bound.command.environment:
        if variable.name.startswith(PREFIX):
            yield variable.name, variable.value, "given in the environment"
    for name in _IN_FORCE:
        flag = bound.given(name)
        declared = options.get(name)
        if flag is not None:
            yield name, flag.flag.value or "true", "given in the command"
        elif declared is not None and declared.option.default not in ("", "None") and not declared.negates:
            yield name, declared.option.default.strip("'\""), "the version's default"
    for key in ("moe_backend", "attention_backend", "kv_cache_dtype", "quantization"):
        value = request.values.get(key)
        if value is not None:
            yield f"draft {key}", str(value), "given in the speculative configuration"


def _changed(stack: Stack, request: SpeculativeRequest) -> Iterator[Reading[str]]:
    if not request.is_given:
        return
    admission = admission_change(stack.tree)
    if not admission.understood or admission.is_found:
        yield admission
