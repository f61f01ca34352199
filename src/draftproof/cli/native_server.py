"""Carries out `draftproof serve` with our own engine: evidence, engine process, HTTP server."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi import FastAPI

from draftproof import __version__
from draftproof.checkpoint.checkpoint import Checkpoint, open_checkpoint
from draftproof.checkpoint.config import MAX_INTEGER
from draftproof.cli.served_chain import served_chain
from draftproof.cli.server_announcement import (
    CHAT_EXAMPLE,
    TEXT_EXAMPLE,
    Example,
    StartProgress,
    announce,
)
from draftproof.cli.server_options import SamplingSource, ServerRequest
from draftproof.engine.config import EngineConfig
from draftproof.errors import EnvironmentProblem, UsageError
from draftproof.evidence import ChainReport
from draftproof.links.config import check_config
from draftproof.links.progress import NoProgress
from draftproof.links.subject import subject_of
from draftproof.links.weights import check_weights
from draftproof.runtime.sampling import LARGEST_REPETITION_PENALTY, LARGEST_TEMPERATURE
from draftproof.server.app import create_app
from draftproof.server.host_check import is_loopback
from draftproof.server.listening import take_address
from draftproof.server.observability import observe
from draftproof.server.run import Lifetime, run_server
from draftproof.server.settings import SamplingDefaults, ServerSettings
from draftproof.serving.checkpoint_factory import CheckpointFactory
from draftproof.serving.client import EngineClient
from draftproof.serving.engine_process import EngineProcess
from draftproof.serving.factory import EngineFactory
from draftproof.serving.logs import LogSettings, configure_logs
from draftproof.serving.messages import EngineReady
from draftproof.serving.process_client import ServingLimits
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ServedText:
    """What turns requests into tokens.

    Attributes:
        tokenizer: of the checkpoint.
        template: of the checkpoint, or the one that was given; None when there is none.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None

    @property
    def example(self) -> Example:
        """A request that this server can answer."""
        return TEXT_EXAMPLE if self.template is None else CHAT_EXAMPLE


def serve_natively(argument: str, engine: EngineConfig, request: ServerRequest) -> int:
    """Serve a checkpoint with our own engine, see `serve_engine`."""
    return serve_engine(argument, CheckpointFactory(argument, engine), request)


def serve_engine(argument: str, factory: EngineFactory, request: ServerRequest) -> int:
    """Serve until told to stop.

    What a user may have got wrong is looked at first, then the engine is loaded while links 1 and 2 are
    checked, and only then clients can connect.

    Args:
        argument: the checkpoint as the user named it.
        factory: makes the engine, in its own process.
        request: everything else.

    Returns:
        0 after an orderly end.

    Raises:
        DraftproofError: the server could not be started; its exit code says of what kind the reason is.
    """
    checkpoint = open_checkpoint(argument)
    folder = _folder(checkpoint)
    tokenizer = Tokenizer.load(folder)
    text = ServedText(tokenizer, template_of(folder, request.chat_template, tokenizer))
    settings = served_settings(argument, checkpoint, request)
    with closing(take_address(request.host, request.port)) as address:
        logs = LogSettings(request.log_format, request.log_level)
        configure_logs(logs)
        with ThreadPoolExecutor(1) as beside, StartProgress() as progress:
            chain = beside.submit(_chain, checkpoint)
            process = EngineProcess.start(factory, progress.show, logs)
            progress.show("checking links 1 and 2")
            found = _result(chain, process)
        return run_server(
            process,
            address,
            lambda client: _app(client, text, settings, found, request),
            Lifetime(ServingLimits(request.max_queue, request.stall_seconds), request.drain_seconds),
            lambda: announce(found, process.ready, settings, address, text.example),
        )


def _app(
    client: EngineClient,
    text: ServedText,
    settings: ServerSettings,
    chain: ChainReport | None,
    request: ServerRequest,
) -> FastAPI:
    ready = client.ready
    evidence = None if chain is None else served_chain(chain)
    watched = observe(client, settings, evidence, request.metrics_compat)
    return create_app(
        watched.client,
        text.tokenizer,
        text.template,
        settings,
        rules_check=_rules_check(text.tokenizer, ready),
        routers=watched.routers,
    )


def _rules_check(tokenizer: Tokenizer, ready: EngineReady) -> GrammarCompiler:
    """Prepared: the first request with a grammar would otherwise hold up all others."""
    compiler = GrammarCompiler(tokenizer, ready.end_token_ids, ready.vocabulary_size)
    if ready.end_token_ids:
        compiler.prepare()
    return compiler


def _chain(checkpoint: Checkpoint) -> ChainReport:
    """Links 1 and 2, which need no more than the files."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    links = (check_config(checkpoint), check_weights(checkpoint, None, NoProgress()))
    arguments = ("draftproof", *sys.argv[1:])
    return ChainReport(subject_of(checkpoint), links, __version__, started_at, arguments)


def _result(chain: Future[ChainReport], process: EngineProcess) -> ChainReport:
    """The chain; the engine process does not outlive a failure of it."""
    try:
        return chain.result()
    except BaseException:
        process.kill()
        raise


def _folder(checkpoint: Checkpoint) -> Path:
    if checkpoint.folder is None:
        raise EnvironmentProblem(
            f"the weights of {checkpoint.location} are not on this machine",
            "Download the repository first, for instance with `hf download`.",
        )
    return checkpoint.folder


def template_of(folder: Path, given: Path | None, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The template that was given, else the checkpoint's; None when it has none."""
    if given is not None:
        try:
            source = given.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--chat-template {given} cannot be read: {error}") from error
        return ChatTemplate({"default": source}, tokenizer.special_tokens, str(given))
    try:
        return ChatTemplate.load(folder)
    except UsageError:
        return None


def served_settings(argument: str, checkpoint: Checkpoint, request: ServerRequest) -> ServerSettings:
    names = request.model_names or (_model_name(argument),)
    source = request.sampling_source
    return ServerSettings(
        model_names=names,
        model_root=argument,
        created=int(time.time()),
        api_keys=request.api_keys,
        request_seconds=request.request_seconds,
        sampling=SamplingDefaults() if source is SamplingSource.OPENAI else sampling_defaults(checkpoint),
        allowed_origins=request.allowed_origins,
        is_local=is_loopback(request.host),
    )


def _model_name(argument: str) -> str:
    """A repository by its id, a folder by its last part."""
    path = Path(argument).expanduser()
    return path.resolve().name if path.is_dir() else argument.partition("@")[0]


def sampling_defaults(checkpoint: Checkpoint) -> SamplingDefaults:
    """What generation_config.json recommends for requests that leave values out.

    Raises:
        CheckpointError: the file is broken.
    """
    reader = checkpoint.config.generation_config.optional()
    if reader is None:
        return SamplingDefaults()
    plain = SamplingDefaults()
    return SamplingDefaults(
        temperature=reader.number("temperature", 0.0, LARGEST_TEMPERATURE, plain.temperature),
        top_p=reader.number("top_p", 0.0, 1.0, plain.top_p),
        top_k=reader.integer("top_k", 0, MAX_INTEGER, plain.top_k),
        min_p=reader.number("min_p", 0.0, 1.0, plain.min_p),
        repetition_penalty=reader.number(
            "repetition_penalty", 0.01, LARGEST_REPETITION_PENALTY, plain.repetition_penalty
        ),
    )
