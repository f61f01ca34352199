"""`draftproof serve` as a process of its own, as a user runs it.

    with running_server("--max-num-seqs", "4") as server:
        httpx2.get(f"{server.url}/health")

A server takes two to three seconds to start: share one in a module.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
"""Much longer than a start takes: tests run beside others."""
STOP_SECONDS = 20.0
_SERVING = re.compile(r"^Serving .* at (http://\S+)$", re.M)


class ServerDidNotStart(AssertionError):
    """The process ended, or did not open its port in time."""


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    Attributes:
        url: without a path.
        process: of the API; the engine is its child.
        folder: holds what it wrote.
    """

    url: str
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return (self.folder / "stdout").read_text(encoding="utf-8")

    @property
    def log(self) -> str:
        """Its standard error so far."""
        return (self.folder / "stderr").read_text(encoding="utf-8")

    @property
    def engine_pid(self) -> int:
        """Of the engine process."""
        found = [pid for pid in children_of(self.process.pid) if "multiprocessing.spawn" in command_of(pid)]
        assert len(found) == 1, found
        return found[0]


@contextmanager
def running_server(
    *options: str, checkpoint: str = "tiny", environment: Mapping[str, str] | None = None
) -> Iterator[RunningServer]:
    """Start `draftproof serve CHECKPOINT OPTIONS` on a free port, and end it afterwards if it still runs."""
    command = [sys.executable, "-m", "draftproof.cli.main", "serve", checkpoint, "--port", "0", *options]
    with serving_process(command, environment) as server:
        yield server


@contextmanager
def scripted_server(*options: str) -> Iterator[RunningServer]:
    """The same server over an engine that does as it is told, see `tests.support.scripted_server`: it starts
    in half the time."""
    with serving_process([sys.executable, "-m", "tests.support.scripted_server", *options]) as server:
        yield server


@contextmanager
def serving_process(
    command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[RunningServer]:
    """Run a command that ends up announcing a server as `draftproof serve` does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", **(environment or {})},
            )
        try:
            yield RunningServer(_url(process, folder), process, folder)
        finally:
            _end(process)


def is_running(pid: int) -> bool:
    """Whether there is such a process, one that only waits to be noticed (a zombie) not counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until_gone(pid: int, seconds: float = STOP_SECONDS) -> None:
    """Wait for a process to end; AssertionError when it does not."""
    limit = monotonic() + seconds
    while is_running(pid):
        assert monotonic() < limit, f"process {pid} is still there after {seconds:g} seconds"
        sleep(0.02)


def children_of(pid: int) -> list[int]:
    """Processes that this one started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in listed.split()]


def command_of(pid: int) -> str:
    """Its words, with spaces between them."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _url(process: subprocess.Popen[bytes], folder: Path) -> str:
    limit = monotonic() + START_SECONDS
    while True:
        found = _SERVING.search((folder / "stdout").read_text(encoding="utf-8"))
        if found is not None:
            return found[1]
        if process.poll() is not None or monotonic() > limit:
            log = (folder / "stderr").read_text(encoding="utf-8")
            raise ServerDidNotStart(f"exit code {process.returncode}: {log}")
        sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait(STOP_SECONDS)
