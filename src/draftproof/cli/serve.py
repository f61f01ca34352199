"""`draftproof serve`: an OpenAI server over our own engine, or the proposed command on an installed stack."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from draftproof.cli.brought_options import (
    DropPrefixesOption,
    KeepPrefixesOption,
    MemoryShareOption,
    ModelPathOption,
    ServedCheckpointArgument,
    SpeculativeConfigOption,
    TreeWidthOption,
    WindowTokensOption,
    json_object,
    one_checkpoint,
)
from draftproof.cli.config_file import ConfigFileOption
from draftproof.cli.console import write_text
from draftproof.cli.engine_options import (
    ChunkOption,
    ComputeTypeOption,
    DeviceOption,
    DrafterOption,
    DraftVocabularyOption,
    StorageOption,
    ThreadsOption,
)
from draftproof.cli.planning import one_stack
from draftproof.cli.server_engine import DEFAULT_DRAFTS, EngineOptions, engine_config
from draftproof.cli.server_options import (
    ApiKeyOption,
    ChatTemplateOption,
    DraftPolicyOption,
    DrainOption,
    HostOption,
    LogFormatOption,
    LogLevelOption,
    MetricsOption,
    ModelNameOption,
    OriginOption,
    PortOption,
    QueueOption,
    ReasoningParserOption,
    RequestSecondsOption,
    SamplingSource,
    SamplingSourceOption,
    ServerRequest,
    SettingSource,
    SimulatedOption,
    SnapshotsOption,
    StallOption,
    ToolParserOption,
    TotalTokensOption,
    require_qwen_format,
    require_usable_access,
    shown_settings,
)
from draftproof.cli.stack_options import (
    BandwidthOption,
    CacheTypeOption,
    CapabilityOption,
    GpuOption,
    Load,
    MemoryOption,
    StackOption,
    TensorParallelOption,
    deployment_request,
)
from draftproof.engine.config import DrafterName, DraftPolicy, EngineConfig
from draftproof.errors import UsageError
from draftproof.hardware.gpu_choice import GpuOptions
from draftproof.models.weight_storage import WeightStorage
from draftproof.serving.logs import LogFormat, LogLevel
from draftproof.speculation.draft_vocabulary import FREQUENT
from draftproof.stacks.situation import CacheType
from draftproof.stacks.stack import StackKind

PLAN_ONLY = (
    "gpu",
    "tensor_parallel",
    "capability",
    "memory",
    "bandwidth",
    "cache_type",
)
"""Options that describe a deployment of another stack; our own server looks at the machine itself."""
BOTH = (
    "checkpoint",
    "model_path",
    "stack",
    "draft_tokens",
    "max_length",
    "max_num_seqs",
    "dry_run",
    "as_json",
)


def serve(
    context: typer.Context,
    checkpoint: ServedCheckpointArgument = None,
    stack: StackOption = None,
    config: ConfigFileOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    api_key: ApiKeyOption = None,
    served_model_name: ModelNameOption = None,
    allowed_origin: OriginOption = None,
    drafter: DrafterOption = DrafterName.NEXTN,
    draft_tokens: Annotated[
        int | None,
        typer.Option(
            "--k",
            "--draft-tokens",
            "--speculative-num-steps",
            min=0,
            help="Most drafts per verify pass (K); 3 if not given.",
        ),
    ] = None,
    draft_policy: DraftPolicyOption = DraftPolicy.ADAPTIVE,
    draft_vocabulary: DraftVocabularyOption = FREQUENT,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            "--max-model-len",
            "--context-length",
            "--context",
            min=2,
            help="Longest prompt and output together.",
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            "--max-num-seqs",
            "--max-running-requests",
            "--concurrency",
            min=1,
            help="Sequences that run at a time; 8, and 1 in a plan for another stack.",
        ),
    ] = None,
    simulate_accept_length: SimulatedOption = None,
    max_total_tokens: TotalTokensOption = None,
    prefix_snapshots: SnapshotsOption = None,
    device: DeviceOption = "cpu",
    dtype: ComputeTypeOption = None,
    weights: StorageOption = WeightStorage.DENSE,
    prompt_chunk: ChunkOption = 256,
    threads: ThreadsOption = None,
    max_queue: QueueOption = 256,
    stall_seconds: StallOption = 60.0,
    drain_seconds: DrainOption = 30.0,
    request_seconds: RequestSecondsOption = None,
    model_path: ModelPathOption = None,
    speculative_config: SpeculativeConfigOption = None,
    window_tokens: WindowTokensOption = None,
    tree_width: TreeWidthOption = None,
    keep_prefixes: KeepPrefixesOption = None,
    drop_prefixes: DropPrefixesOption = None,
    memory_share: MemoryShareOption = None,
    chat_template: ChatTemplateOption = None,
    reasoning_parser: ReasoningParserOption = None,
    tool_call_parser: ToolParserOption = None,
    sampling_defaults: SamplingSourceOption = SamplingSource.MODEL,
    metrics_compat: MetricsOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    gpu: GpuOption = None,
    tensor_parallel: TensorParallelOption = None,
    capability: CapabilityOption = None,
    memory: MemoryOption = None,
    bandwidth: BandwidthOption = None,
    cache_type: CacheTypeOption = CacheType.AUTO,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--print-config", help="Show what is in force, and start nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON.")] = False,
) -> int:
    """Serve a checkpoint with its MTP head behind OpenAI's API.

    Without --stack, or with --stack native, our own engine answers, in a process of its own; SIGTERM finishes
    what runs and ends with 0. With --stack sglang or vllm the plan for that stack is made, judged and run;
    the stack must be installed, in this environment or in the one that --stack names by its path, and a plan
    with a broken link is not run.

    Every option is also read from the environment: DRAFTPROOF_SERVE_MAX_NUM_SEQS stands for --max-num-seqs.
    The command line wins over the environment, and the environment over a file that --config names.

    Exit codes: 0 after an orderly end, 1 the checkpoint or a link is broken, 2 usage, 4 something is missing
    or the address is in use; with another stack those of its server, and with --dry-run those of
    `draftproof plan`.
    """
    named = one_checkpoint(checkpoint, model_path)
    wanted = None if stack is None else one_stack(stack, "serve")
    if wanted is not None and wanted.kind is not StackKind.NATIVE:
        _refuse(context, _native_only(context), f"--stack {stack}")
        from draftproof.cli.stack_server import serve_on_stack

        drafts = DEFAULT_DRAFTS if draft_tokens is None else draft_tokens
        load = Load(drafts, max_length, max_num_seqs or 1, cache_type)
        options = GpuOptions(gpu, capability, memory, bandwidth)
        request = deployment_request(stack, None, options, tensor_parallel, load)
        return serve_on_stack(named, wanted, request, dry_run)
    _refuse(context, PLAN_ONLY, "draftproof's own server")
    require_qwen_format(reasoning_parser, tool_call_parser)
    require_usable_access(api_key or (), allowed_origin or ())
    if as_json and not dry_run:
        raise UsageError("--json goes with --dry-run", "Add --dry-run, or leave --json out.")
    engine = engine_config(
        EngineOptions(
            drafter=drafter,
            draft_tokens=draft_tokens,
            speculative_config=json_object("--speculative-config", speculative_config),
            window_tokens=window_tokens,
            drafts_per_position=tree_width,
            draft_policy=draft_policy,
            draft_vocabulary=draft_vocabulary,
            max_sequences=max_num_seqs,
            max_length=max_length,
            max_total_tokens=max_total_tokens,
            prefix_snapshots=prefix_snapshots,
            keeps_prefixes=keep_prefixes,
            drops_prefixes=drop_prefixes,
            memory_share=memory_share,
            prompt_chunk=prompt_chunk,
            compute_type=dtype,
            weight_storage=weights,
            device=device,
            threads=threads,
            simulated_accept_length=simulate_accept_length,
        )
    )
    server = ServerRequest(
        host=host,
        port=port,
        api_keys=tuple(api_key or ()),
        model_names=tuple(served_model_name or ()),
        allowed_origins=tuple(allowed_origin or ()),
        max_queue=max_queue,
        stall_seconds=stall_seconds,
        drain_seconds=drain_seconds,
        request_seconds=request_seconds,
        chat_template=chat_template,
        sampling_source=sampling_defaults,
        metrics_compat=metrics_compat,
        log_format=log_format,
        log_level=log_level,
    )
    if dry_run:
        return _print_settings(context, engine, server, as_json)
    # FastAPI takes a third of a second to import, and `--help` has no use for it.
    from draftproof.cli.native_server import serve_natively

    return serve_natively(named, engine, server)


def _native_only(context: typer.Context) -> tuple[str, ...]:
    return tuple(name for name in context.params if name not in (*PLAN_ONLY, *BOTH))


def _refuse(context: typer.Context, names: tuple[str, ...], where: str) -> None:
    """Options that were given and mean nothing here.

    Raises:
        UsageError: names the first.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            raise UsageError(f"{parameter.opts[0]} means nothing to {where}", "Leave it out.")


def _print_settings(
    context: typer.Context, engine: EngineConfig, server: ServerRequest, as_json: bool
) -> int:
    settings = shown_settings(engine, server, lambda parameter: _source(context, parameter))
    if as_json:
        write_text(json.dumps({name: value for name, value, _ in settings}, indent=2) + "\n")
        return 0
    width = max(len(name) for name, _, _ in settings)
    for name, value, source in settings:
        write_text(f"{name:<{width}}  {value!s:<12} {source.value}\n")
    return 0


def _source(context: typer.Context, parameter: str) -> SettingSource:
    """Where a parameter's value comes from."""
    source = context.get_parameter_source(parameter)
    return SettingSource.named("" if source is None else source.name)
