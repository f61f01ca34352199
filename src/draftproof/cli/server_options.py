"""Options of `draftproof serve` for our own server, and what they mean together. Names of vLLM and SGLang
that mean the same work too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from draftproof.engine.config import DraftPolicy, EngineConfig
from draftproof.errors import UsageError
from draftproof.server.metric_names import MetricsDialect
from draftproof.serving.logs import LogFormat, LogLevel

_ADDRESS = "Address and access"
_LIMITS = "Queue and patience"
_TEXT = "Chat and output"
_OUTPUT = "Logs and metrics"

QWEN_REASONING_PARSERS = ("qwen3", "qwen3_5", "qwen3-thinking")
QWEN_TOOL_PARSERS = ("qwen3_coder", "qwen3_xml", "qwen3_5")

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+|null")


class SamplingSource(Enum):
    """Where values come from that a request leaves out."""

    MODEL = "model"
    """From the checkpoint's generation_config.json, where it says them."""
    OPENAI = "openai"
    """Those of OpenAI's API."""


HostOption = Annotated[
    str, typer.Option(rich_help_panel=_ADDRESS, help="Address to listen at; 0.0.0.0 lets the network in.")
]
PortOption = Annotated[
    int,
    typer.Option(min=0, max=65535, rich_help_panel=_ADDRESS, help="Port to listen at; 0 takes a free one."),
]
ApiKeyOption = Annotated[
    list[str] | None,
    typer.Option(rich_help_panel=_ADDRESS, help="Requests must carry it; may be repeated."),
]
ModelNameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--served-model-name",
        rich_help_panel=_ADDRESS,
        help="Name of the model in requests and answers; may be repeated. The checkpoint's if not given.",
    ),
]
OriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-origin",
        rich_help_panel=_ADDRESS,
        help="Web pages of this origin may call the API; may be repeated. None if not given.",
    ),
]
QueueOption = Annotated[
    int,
    typer.Option(
        "--max-queue",
        "--max-queued-requests",
        min=0,
        rich_help_panel=_LIMITS,
        help="Requests that may wait; more are turned away with 429.",
    ),
]
StallOption = Annotated[
    float,
    typer.Option(
        "--stall-seconds",
        "--watchdog-timeout",
        min=0.1,
        rich_help_panel=_LIMITS,
        help="An engine with work that says nothing for so long is given up.",
    ),
]
DrainOption = Annotated[
    float,
    typer.Option(
        "--drain-seconds",
        min=0.0,
        rich_help_panel=_LIMITS,
        help="On SIGTERM, running requests have so long to finish.",
    ),
]
RequestSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--request-seconds",
        min=0.001,
        rich_help_panel=_LIMITS,
        help="A request that is not finished after so long ends with an error; no limit if not given.",
    ),
]
ChatTemplateOption = Annotated[
    Path | None,
    typer.Option(rich_help_panel=_TEXT, metavar="FILE", help="In place of the checkpoint's own."),
]
ReasoningParserOption = Annotated[
    str | None,
    typer.Option(rich_help_panel=_TEXT, help="Names of Qwen's format are accepted; it is the one in use."),
]
ToolParserOption = Annotated[
    str | None,
    typer.Option(
        "--tool-call-parser",
        rich_help_panel=_TEXT,
        help="Names of Qwen's format are accepted; it is the one in use.",
    ),
]
SamplingSourceOption = Annotated[
    SamplingSource,
    typer.Option(
        "--sampling-defaults",
        rich_help_panel=_TEXT,
        help="What a request gets that names no temperature, top_p, ...: the model's values or OpenAI's.",
    ),
]
MetricsOption = Annotated[
    MetricsDialect | None,
    typer.Option(
        "--metrics-compat",
        rich_help_panel=_OUTPUT,
        help="Give metrics the names of vLLM or SGLang as well, for boards made for them.",
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option(rich_help_panel=_OUTPUT, help="Log lines on standard error.")
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(rich_help_panel=_OUTPUT, help="Lines from this level on; requests are logged at info."),
]
DraftPolicyOption = Annotated[
    DraftPolicy,
    typer.Option(help="Always K drafts, or as many as pay for the batch at hand: from none to K."),
]
SimulatedOption = Annotated[
    float | None,
    typer.Option(
        "--simulate-accept-length",
        min=1.0,
        help="SIMULATE acceptance on a GPU: tokens per verify pass. The text means nothing then, and every "
        "answer says so.",
    ),
]
TotalTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-total-tokens",
        min=1,
        help="Positions of all sequences and kept prompts together; enough for every sequence at its longest "
        "if not given.",
    ),
]
SnapshotsOption = Annotated[
    int | None,
    typer.Option(
        "--prefix-snapshots",
        min=0,
        help="States that are kept so that prompts which begin alike are not computed again; four for each "
        "sequence if not given, 0 keeps none.",
    ),
]


@dataclass(frozen=True)
class ServerRequest:
    """Our own server as the command line asks for it, engine apart.

    Attributes:
        host: address to listen at.
        port: 0 for a free one.
        api_keys: requests must carry one of them.
        model_names: in requests and answers; empty for the checkpoint's.
        allowed_origins: web pages of these may call the API.
        max_queue: requests that may wait.
        stall_seconds: patience with a silent engine.
        drain_seconds: patience with running requests at the end.
        request_seconds: deadline of every request; None for none.
        chat_template: file in place of the checkpoint's.
        sampling_source: of values that requests leave out.
        metrics_compat: further names of metrics.
        log_format: of lines on standard error.
        log_level: lines from this one on.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    model_names: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_queue: int = 256
    stall_seconds: float = 60.0
    drain_seconds: float = 30.0
    request_seconds: float | None = None
    chat_template: Path | None = None
    sampling_source: SamplingSource = SamplingSource.MODEL
    metrics_compat: MetricsDialect | None = None
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO

    def settings(self) -> dict[str, object]:
        """All fields by name, keys counted and not shown."""
        return {**asdict(self), "api_keys": f"{len(self.api_keys)} given" if self.api_keys else None}


def require_qwen_format(reasoning_parser: str | None, tool_parser: str | None) -> None:
    """Names of parsers of other stacks, accepted when they mean what this server does anyway.

    Raises:
        UsageError: another format is asked for.
    """
    for option, given, known in (
        ("--reasoning-parser", reasoning_parser, QWEN_REASONING_PARSERS),
        ("--tool-call-parser", tool_parser, QWEN_TOOL_PARSERS),
    ):
        if given is not None and given not in known:
            raise UsageError(
                f"{option} {given}: this server reads Qwen's format only", "Leave the option out."
            )


def require_usable_access(api_keys: Sequence[str], allowed_origins: Sequence[str]) -> None:
    """Keys that protect, and origins that a browser can send.

    Raises:
        UsageError: a key is empty, as a variable that was never set is, or has characters that no header
            carries as they are; an origin is more or less than scheme, host and port.
    """
    for key in api_keys:
        if not key or not key.isascii() or not key.isprintable() or key != key.strip():
            raise UsageError(
                "--api-key: a key is empty, begins or ends with a space, or has other characters than "
                "printable ASCII",
                "Give another one.",
            )
    for origin in allowed_origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"--allowed-origin {origin} is no origin",
                "Write scheme, host and port as browsers do, like https://chat.example.org or "
                "http://localhost:3000, or * for all.",
            )


class SettingSource(Enum):
    """Where a setting comes from, the strongest first."""

    COMMAND_LINE = "command line"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"

    @staticmethod
    def named(name: str) -> SettingSource:
        """By the name that the command line's library has for it."""
        return _SOURCES.get(name, SettingSource.DEFAULT)


_SOURCES = {
    "COMMANDLINE": SettingSource.COMMAND_LINE,
    "ENVIRONMENT": SettingSource.ENVIRONMENT,
    "DEFAULT_MAP": SettingSource.FILE,
}
_PARAMETERS = {
    "draft_tokens": ("draft_tokens", "speculative_config"),
    "max_sequences": ("max_num_seqs",),
    "prefix_snapshots": ("prefix_snapshots", "keep_prefixes", "drop_prefixes"),
    "compute_type": ("dtype",),
    "weight_storage": ("weights",),
    "simulated_accept_length": ("simulate_accept_length",),
    "api_keys": ("api_key",),
    "model_names": ("served_model_name",),
    "allowed_origins": ("allowed_origin",),
    "sampling_source": ("sampling_defaults",),
}
"""Parameters of the command that decide a setting of another name."""


def shown_settings(
    engine: EngineConfig, server: ServerRequest, source: Callable[[str], SettingSource]
) -> list[tuple[str, object, SettingSource]]:
    """Every setting in force: name, value, and the strongest source that decides it.

    Args:
        engine: the engine's.
        server: everything else.
        source: of a parameter of the command.
    """
    strength = list(SettingSource)
    settings = {**asdict(engine), **server.settings()}
    # Without drafts there is no drafter.
    deciding = _PARAMETERS if engine.draft_tokens else {**_PARAMETERS, "drafter": ("drafter", "draft_tokens")}
    return [
        (name, _plain(value), min(map(source, deciding.get(name, (name,))), key=strength.index))
        for name, value in settings.items()
    ]


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
