"""`draftproof serve` as a process of its own, and completions from it, for benchmarks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, sleep

import httpx2

START_SECONDS = 120.0
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class ServedAnswer:
    """One completion.

    Attributes:
        tokens: of the output, as the server counts them.
        seconds: from the request to its end.
        text: of the output.
        accept_length: tokens a verify pass.
    """

    tokens: int
    seconds: float
    text: str
    accept_length: float

    @property
    def speed(self) -> float:
        """Tokens a second, prompt included."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Ask:
    """What a completion is asked for.

    Attributes:
        prompt: token ids.
        tokens: of the output.
        temperature: of the draw.
        seed: of the noise.
        streamed: whether the answer comes as it is written.
        speculative: False switches drafts off.
    """

    prompt: tuple[int, ...]
    tokens: int
    temperature: float
    seed: int
    streamed: bool = True
    speculative: bool = True

    @property
    def body(self) -> dict[str, object]:
        """Of the request."""
        stream = {"stream": True, "stream_options": {"include_usage": True}} if self.streamed else {}
        return {
            "model": "tiny",
            "prompt": list(self.prompt),
            "max_tokens": self.tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "ignore_eos": True,
            "speculative": self.speculative,
            **stream,
        }


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    Attributes:
        address: of it.
        process_id: of its first process; the engine's is a child of that one.
    """

    address: str
    process_id: int

    def engine_seconds(self) -> float:
        """CPU time that the engine process has had."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        return max(_processor_seconds(child) for child in children)

    def front_seconds(self) -> float:
        """CPU time that the HTTP process has had."""
        return _processor_seconds(str(self.process_id))


def _processor_seconds(process_id: str) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(*options: str) -> Iterator[RunningServer]:
    """A server of the embedded checkpoint that is ready; stopped afterwards."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "draftproof.cli.main", "serve", "tiny", "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process)
        yield RunningServer(address, process.pid)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    end = monotonic() + START_SECONDS
    while monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        try:
            if httpx2.get(f"{address}/health").status_code == 200:
                return
        except httpx2.TransportError:
            sleep(0.1)
    raise SystemExit(f"the server was not ready after {START_SECONDS:.0f} seconds")


def ask(client: httpx2.Client, asked: Ask) -> ServedAnswer:
    """One completion, streamed or whole."""
    begin = perf_counter()
    if not asked.streamed:
        answer = client.post("/v1/completions", json=asked.body).raise_for_status().json()
        return _answer(answer, answer["choices"][0]["text"], perf_counter() - begin)
    texts, last = [], {}
    with client.stream("POST", "/v1/completions", json=asked.body) as response:
        for line in response.raise_for_status().iter_lines():
            if line.startswith("data: {"):
                last = json.loads(line.removeprefix("data: "))
                texts += [choice["text"] for choice in last["choices"]]
    return _answer(last, "".join(texts), perf_counter() - begin)


def _answer(last: dict[str, object], text: str, seconds: float) -> ServedAnswer:
    usage, metrics = last["usage"], last.get("metrics") or {}
    assert isinstance(usage, dict)
    assert isinstance(metrics, dict)
    length = metrics.get("speculative_decoding", {}).get("mean_acceptance_length", 1.0)
    return ServedAnswer(usage["completion_tokens"], seconds, text, length)


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]
