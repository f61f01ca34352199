"""What `draftproof serve` says while the engine is made, and when clients can connect."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from draftproof.cli.console import report_console
from draftproof.evidence import ChainReport
from draftproof.evidence.terminal_parts import QUIET, heading
from draftproof.evidence.verdict import Verdict
from draftproof.hardware.probe import probe_gpus
from draftproof.server.listening import url_of
from draftproof.server.settings import ServerSettings
from draftproof.serving.messages import EngineReady

_STYLES = {Verdict.PROVEN: "green", Verdict.DISPROVED: "bold red", Verdict.UNKNOWN: "yellow"}


class StartProgress:
    """One line on standard error that changes; where that is no terminal, a line for each part."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self._status = Status("starting", console=console) if console.is_terminal else None

    def __enter__(self) -> StartProgress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, line: str) -> None:
        """What is being done now."""
        if self._status is not None:
            self._status.update(line)
        else:
            sys.stderr.write(f"{line} …\n")
            sys.stderr.flush()


@dataclass(frozen=True)
class Example:
    """A request to try the server with.

    Attributes:
        path: of the route.
        body: without the model.
        limit: why it is no conversation; None when it is.
    """

    path: str
    body: Mapping[str, object]
    limit: str | None = None


CHAT_EXAMPLE = Example("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})
TEXT_EXAMPLE = Example(
    "/v1/completions",
    {"prompt": "Hello", "max_tokens": 50},
    "no chat template: /v1/completions only; --chat-template FILE brings one",
)


def announce(
    chain: ChainReport, ready: EngineReady, settings: ServerSettings, address: socket.socket, example: Example
) -> None:
    """Print what runs, what is known about it, and how to try it."""
    console, url = report_console(), url_of(address)
    console.print(heading("draftproof serve", chain.subject))
    console.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(chain, ready, settings):
        table.add_row(name, value)
    if example.limit is not None:
        table.add_row("chat", example.limit)
    console.print(table)
    console.print()
    if ready.simulated_accept_length is not None:
        warning = f"SIMULATED: accept length {ready.simulated_accept_length:g}; the text means nothing"
        console.print(Text(warning, style="bold red"))
    console.print(Text.assemble("Serving ", (settings.model_name, "bold"), " at ", (url, "bold")))
    console.print(Text(f"Try it: {_try_it(url, settings, example)}", style=QUIET), soft_wrap=True)


def _rows(
    chain: ChainReport, ready: EngineReady, settings: ServerSettings
) -> Iterator[tuple[str, Text | str]]:
    for report in chain.links:
        verdict = Text(report.verdict.value, style=_STYLES[report.verdict])
        yield f"link {report.link.number} {report.link.value}", Text.assemble(verdict, f"  {report.summary}")
    yield "weights", "; ".join(ready.load_lines)
    drafts = f"up to {ready.draft_tokens} tokens a pass" if ready.draft_tokens else "plain decoding"
    yield "drafter", f"{ready.drafter_name}, {drafts}"
    yield "context", f"{ready.max_length:,} tokens, {ready.max_sequences} sequences at a time"
    yield "memory", ready.memory
    yield "device", _device(ready.device)
    if settings.api_keys:
        yield "access", "with an API key"


def _device(name: str) -> str:
    """The device; a GPU that lies idle is pointed out."""
    if name != "cpu":
        return name
    found = ", ".join(dict.fromkeys(gpu.name for gpu in probe_gpus().gpus))
    return f"cpu (this machine has {found}: add --device cuda)" if found else "cpu"


def _try_it(url: str, settings: ServerSettings, example: Example) -> str:
    body = {"model": settings.model_name, **example.body}
    key = "-H 'Authorization: Bearer YOUR_KEY' " if settings.api_keys else ""
    return f"curl {url}{example.path} {key}-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
