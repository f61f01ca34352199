"""From a checkpoint and a config to a wired engine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ModelSpec
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.finding import FindingKind
from draftproof.device.graphs import recorder_for
from draftproof.device.machine import StepMachine
from draftproof.device.self_check import self_check
from draftproof.device.shapes import StepShape, representative_shapes
from draftproof.device.state import DeviceState
from draftproof.device.weights import DeviceModel, DraftVocabulary, device_model
from draftproof.engine.calibration import (
    Calibration,
    DictatedChoice,
    calibrated_batches,
    calibrated_drafts,
    measure_step_costs,
)
from draftproof.engine.config import ComputeType, DrafterName, DraftPolicy, EngineConfig
from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.engine import Engine
from draftproof.engine.loop import EngineLoop
from draftproof.engine.memory_budget import plan_of, room_on, sizes_that_fit
from draftproof.engine.scheduling import scheduler_for
from draftproof.errors import AccountingError, CheckpointError, ConfigError, EnvironmentProblem, UsageError
from draftproof.hardware.host_memory import host_memory_bytes
from draftproof.hardware.weights import weigh_tensors
from draftproof.kernels.draft_head.selection import select_rows
from draftproof.kernels.half_linear import fbgemm
from draftproof.kernels.select import StepKernels, kernels_for
from draftproof.models.account import LoadReport, TensorAccount
from draftproof.models.loading import LoadedModel, load_model
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.models.stored_linear import DenseBackend, LoadTarget
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.state_store import StateSizes, StateStore, state_bytes
from draftproof.speculation.draft_choice import AdaptiveChoice, DraftChoice, FixedChoice
from draftproof.speculation.draft_vocabulary import choose_draft_tokens
from draftproof.speculation.drafter import Drafter, NoDrafter
from draftproof.speculation.nextn import NextnDrafter

DEFAULT_MAX_LENGTH = 32_768
"""Context when the user names none and the checkpoint allows more: its state still fits beside the
weights."""

SHORTEST_CONTEXT = 2
"""A prompt of one token and one of output."""

SMALL_MODEL_PARAMETERS = 30_000_000
"""Below it a second CPU thread costs more in waiting than it saves in work."""

_FETCH_AGAIN = "Fetch the checkpoint again; `draftproof verify` shows all that is wrong."

TORCH_TYPES = {ComputeType.FLOAT32: torch.float32, ComputeType.BFLOAT16: torch.bfloat16}


STOPPING_FINDINGS = frozenset(
    {
        FindingKind.NO_WEIGHTS,
        FindingKind.OTHER_FORMAT,
        FindingKind.BROKEN_FILE,
        FindingKind.TRUNCATED_FILE,
        FindingKind.TRAILING_BYTES,
        FindingKind.MISSING_SHARD,
        FindingKind.TENSOR_NOT_IN_SHARD,
        FindingKind.DUPLICATE_TENSOR,
    }
)
"""Findings with which no weight is read: what would be loaded is not what was published."""


@dataclass(frozen=True)
class BuiltEngine:
    """An engine and what loading found.

    Attributes:
        engine: ready to run.
        spec: the model.
        report: what became of the checkpoint's tensors.
        max_length: longest prompt and output together.
        threads: CPU threads in use.
    """

    engine: EngineLoop
    spec: ModelSpec
    report: LoadReport
    max_length: int
    threads: int


def build_engine(checkpoint: Checkpoint, config: EngineConfig) -> BuiltEngine:
    """Load a checkpoint and wire an engine.

    Raises:
        UsageError: the drafter needs a head that the checkpoint does not have, or the context is too long
            for it.
        CheckpointError: a weight file is missing, cut, or holds something else than the index says, or a
            config file is unusable.
        AccountingError: the tensors are not what the config claims.
        EnvironmentProblem: the device is not there, or the files are not on this machine.
    """
    _require_whole_files(checkpoint)
    spec = _spec(checkpoint)
    device = _device(config.device)
    if config.drafter is DrafterName.NEXTN:
        _require_head(checkpoint, spec)
    max_length = _max_length(spec, config)
    threads = config.threads or _threads(checkpoint)
    torch.set_num_threads(threads)
    sizes = state_sizes(config, max_length)
    if device.type == "cuda":
        sizes = _sizes_that_fit(checkpoint, spec, sizes, _room(device, config))
    elif device.type == "cpu":
        _require_host_memory(spec, sizes, TORCH_TYPES[config.activations])
    target = load_target(config)
    engine: EngineLoop
    if config.uses_device_steps:
        kernels = kernels_for(device, tell=_warn)
        target = replace(target, experts_of_prompt=kernels.experts_of_prompt)
        loaded = _load(checkpoint, spec, config, target, max_length, device)
        with torch.inference_mode():
            engine = wire_device_engine(loaded, kernels, sizes, config, max_length, device)
    else:
        loaded = _load(checkpoint, spec, config, target, max_length, device)
        store = StateStore(spec, sizes, target.dtype, device)

        def wire(choice: DraftChoice) -> Engine:
            return wire_engine(loaded, store, config, choice, max_length, device)

        engine = wire(draft_choice(config, wire))
    return BuiltEngine(engine, spec, loaded.report, max_length, threads)


def load_target(config: EngineConfig) -> LoadTarget:
    """How weights are kept: on a GPU in the blocks of its kernels, in their stored precision; on a CPU as the
    config says, multiplied by FBGEMM when they are float32 and it is there, else by torch."""
    dtype = TORCH_TYPES[config.activations]
    if config.uses_device_steps:
        return LoadTarget(dtype, WeightStorage.PACKED, DenseBackend.PACKED_BLOCKS)
    suits = config.activations is ComputeType.FLOAT32 and config.device == "cpu" and fbgemm.is_available()
    backend = DenseBackend.FBGEMM_HALF if suits else DenseBackend.TORCH
    return LoadTarget(dtype, config.weight_storage, backend)


def draft_slack(config: EngineConfig) -> int:
    """Positions past a sequence's end that drafts may write: a device step drafts a window beyond a window
    whatever is left of the output."""
    return config.window_rows * (2 if config.uses_device_steps else 1)


def state_sizes(config: EngineConfig, max_length: int) -> StateSizes:
    """Slots, snapshots, and pages: for every sequence at its longest with room for drafts past the end, or
    for as many positions as the config says."""
    positions = max_length + draft_slack(config)
    pages = config.max_sequences * -(-positions // config.page_size)
    if config.max_total_tokens is not None:
        pages = min(pages, max(config.max_total_tokens // config.page_size, 1))
    return StateSizes(
        slots=config.max_sequences,
        pages=pages + 1,
        page_size=config.page_size,
        max_positions=positions,
        window_rows=config.window_rows,
        snapshots=config.prefix_snapshots,
    )


def wire_engine(
    loaded: LoadedModel,
    store: StateStore,
    config: EngineConfig,
    choice: DraftChoice,
    max_length: int,
    device: torch.device,
) -> Engine:
    """Put scheduler, drafter and loop around a loaded model."""
    sizes = store.sizes
    scheduler = scheduler_for(sizes, config.prompt_chunk, draft_slack(config))
    drafter: Drafter = NoDrafter()
    if config.drafter is DrafterName.NEXTN:
        if loaded.head is None:
            raise UsageError("NEXTN needs the MTP head, which was not loaded")
        drafter = NextnDrafter(loaded.head, store)
    most = config.window_rows - 1
    return Engine(loaded.target, store, scheduler, drafter, most, choice, max_length, device)


def wire_device_engine(
    loaded: LoadedModel,
    kernels: StepKernels,
    sizes: StateSizes,
    config: EngineConfig,
    max_length: int,
    device: torch.device,
) -> DeviceEngine:
    """Put kernels, state, scheduler and loop around a model that was loaded with packed blocks."""
    target, head = loaded.target, loaded.head if config.window_rows > 1 else None
    model = _with_draft_head(device_model(target, head), target, config)
    largest = StepShape(config.max_sequences, config.window_rows - 1)
    if device.type == "cuda":
        self_check(kernels, model, representative_shapes(largest), sizes)
    machine = StepMachine(
        kernels,
        model,
        DeviceState.allocate(target.spec, sizes, TORCH_TYPES[config.activations], device),
        largest,
        recorder_for(device),
        config.simulated_drafts,
    )

    def wire(choice: DraftChoice) -> DeviceEngine:
        scheduler = scheduler_for(
            sizes, config.prompt_chunk, draft_slack(config), snapshot_grain=config.prompt_chunk
        )
        return DeviceEngine(target, head, machine, scheduler, largest.draft_tokens, choice, max_length)

    return wire(draft_choice(config, wire))


def draft_choice(config: EngineConfig, wire: Callable[[DraftChoice], EngineLoop]) -> DraftChoice:
    """Who decides how many drafts a window gets.

    Args:
        config: names the policy.
        wire: makes an engine to measure steps with, over the state that is used later.
    """
    most = config.window_rows - 1
    if config.draft_policy is DraftPolicy.FIXED or most == 0:
        return FixedChoice(most)
    dictated = DictatedChoice()
    # Measuring a device step records its graph, for which no request should wait later; and a plain step on
    # the device leaves the head behind, so that trying one would cost its sequences their drafts.
    drafts = tuple(range(most + 1)) if config.uses_device_steps else calibrated_drafts(most)
    calibration = Calibration(calibrated_batches(config.max_sequences), drafts)
    costs = measure_step_costs(wire(dictated), dictated, calibration)
    if costs is None:
        return FixedChoice(most)
    return AdaptiveChoice(costs, fewest_tried=1 if config.uses_device_steps else 0)


def _with_draft_head(model: DeviceModel, target: Qwen35Model, config: EngineConfig) -> DeviceModel:
    """The model with an output head for drafts of the tokens that they are to be chosen among."""
    if model.head is None:
        return model
    spec = target.spec
    chosen = choose_draft_tokens(config.draft_vocabulary, spec.vocab_size, spec.end_token_ids)
    if chosen is None:
        return model
    token_ids = torch.tensor(chosen, dtype=torch.int32, device=model.embedding.device)
    drafts = DraftVocabulary(select_rows(model.lm_head, token_ids), token_ids)
    return replace(model, head=replace(model.head, drafts=drafts))


def _room(device: torch.device, config: EngineConfig) -> int:
    free, total = torch.cuda.mem_get_info(device)
    return room_on(free, total, config.memory_share)


def _sizes_that_fit(checkpoint: Checkpoint, spec: ModelSpec, sizes: StateSizes, room: int) -> StateSizes:
    """As many pages as fit into `room` bytes, down to one sequence at its longest; refuses what does not fit
    even then, before any of it is allocated."""
    weights = weigh_tensors(checkpoint.inventory.tensors.values())
    wanted, sizes = sizes, sizes_that_fit(spec, weights, sizes, room)
    if sizes.pages < wanted.pages:
        _warn(
            f"memory holds {(sizes.pages - 1) * sizes.page_size} positions for all sequences together, not "
            f"{(wanted.pages - 1) * sizes.page_size}: sequences may have to wait for each other"
        )
    remedy = (
        "Lower --max-length, --max-num-seqs or --prefix-snapshots, raise --gpu-memory-utilization if it was "
        "given, or use --device cpu."
    )
    plan_of(spec, weights, sizes).require(room, str(checkpoint.location), remedy)
    return sizes


def _require_host_memory(spec: ModelSpec, sizes: StateSizes, dtype: torch.dtype) -> None:
    """Refuse state that the machine cannot hold. The system would hand it out all the same, and end the
    process when it is used."""
    needed = state_bytes(spec, sizes, dtype)
    there = host_memory_bytes()
    if needed > there:
        raise EnvironmentProblem(
            f"{sizes.slots} sequences of {sizes.max_positions:,} positions and {sizes.snapshots} kept "
            f"prompts take {needed / 1e9:,.1f} GB beside the weights, but this machine has "
            f"{there / 1e9:,.1f} GB",
            "Lower --max-length, --max-num-seqs or --prefix-snapshots, or set --max-total-tokens.",
        )


def _warn(line: str) -> None:
    """A demotion is never silent."""
    sys.stderr.write(f"draftproof: {line}\n")


def _require_whole_files(checkpoint: Checkpoint) -> None:
    for finding in checkpoint.inventory.findings:
        if finding.kind in STOPPING_FINDINGS:
            raise CheckpointError(f"{checkpoint.location}: {finding.message}", _FETCH_AGAIN)


def _spec(checkpoint: Checkpoint) -> ModelSpec:
    """What the config says; an error names the checkpoint too."""
    try:
        return spec_from_config(checkpoint.config)
    except ConfigError as error:
        raise ConfigError(f"{checkpoint.location}: {error.message}", error.remedy or _FETCH_AGAIN) from error


def _require_head(checkpoint: Checkpoint, spec: ModelSpec) -> None:
    """NEXTN needs a head: declared, or known from the family and there; a promise without tensors is a
    fault."""
    present = any(name.startswith("mtp.") for name in checkpoint.inventory.tensors)
    remedy = "Use --drafter none, or run `draftproof verify` to see what is there."
    if spec.mtp is None or (spec.mtp.declared_at is None and not present):
        raise UsageError("the checkpoint has no MTP head, so NEXTN has nothing to draft with", remedy)
    if not present:
        raise AccountingError(
            f"the config declares an MTP head ({spec.mtp.declared_at}), but the checkpoint holds "
            "no mtp.* tensor",
            remedy,
        )


def _load(
    checkpoint: Checkpoint,
    spec: ModelSpec,
    config: EngineConfig,
    target: LoadTarget,
    max_length: int,
    device: torch.device,
) -> LoadedModel:
    folder = _folder(checkpoint)
    account = TensorAccount(folder, checkpoint.inventory.tensors, device)
    positions = max_length + draft_slack(config)
    with_head = config.drafter is DrafterName.NEXTN
    with torch.inference_mode():
        return load_model(spec, account, target, positions, device, with_head)


def _folder(checkpoint: Checkpoint) -> Path:
    folder = checkpoint.folder
    if folder is None:
        raise EnvironmentProblem(
            f"the weights of {checkpoint.location} are not on this machine",
            "Download the repository first, for instance with `hf download`.",
        )
    return folder


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise EnvironmentProblem(f"device {name!r} cannot be used: {reason}", "Use --device cpu.") from error
    return device


def _max_length(spec: ModelSpec, config: EngineConfig) -> int:
    total = config.max_total_tokens
    room = None if total is None else total // config.page_size * config.page_size - draft_slack(config)
    if total is not None and room is not None and room < SHORTEST_CONTEXT:
        fewest = -(-(SHORTEST_CONTEXT + draft_slack(config)) // config.page_size) * config.page_size
        raise UsageError(
            f"--max-total-tokens {total} has no room for a single sequence", f"The least here is {fewest}."
        )
    if config.max_length is None:
        longest = min(spec.max_position, DEFAULT_MAX_LENGTH)
        return longest if room is None else min(longest, room)
    if room is not None and config.max_length > room:
        raise UsageError(
            f"a context of {config.max_length} takes {config.max_length + draft_slack(config)} positions "
            f"with the drafts past its end, but there are {total} for all sequences together",
            "Raise --max-total-tokens or lower --max-length.",
        )
    if config.max_length > spec.max_position:
        raise UsageError(
            f"a context of {config.max_length} is more than the checkpoint's {spec.max_position} positions",
            "Lower --max-length.",
        )
    return config.max_length


def _threads(checkpoint: Checkpoint) -> int:
    elements = sum(entry.nbytes for entry in checkpoint.inventory.tensors.values()) // 2
    return 1 if elements < SMALL_MODEL_PARAMETERS else torch.get_num_threads()
