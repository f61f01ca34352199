"""A server under test in processes of its own: started, watched, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

START_SECONDS = 180
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ServerProcess:
    """A running `draftproof serve`.

    Attributes:
        url: where it answers.
        process: its first process.
        log: what it prints.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def resident_megabytes(self) -> dict[str, float]:
        """Memory of the first process and of all that it started, by process number and name."""
        return {
            f"{number} {_name_of(number)}": round(_resident(number) / 1e6, 1)
            for number in _family(self.process.pid)
        }

    def stop(self, seconds: float = 60.0) -> int:
        """Ask it to end; gives its exit code, or -9 when it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@contextmanager
def served(checkpoint: str, log: Path, options: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """Serve a checkpoint on a free port until the block ends.

    Args:
        checkpoint: what `draftproof serve` is given.
        log: file for what the server prints.
        options: further arguments.

    Raises:
        RuntimeError: it does not start; the message ends with the last lines that it printed.
    """
    port = _free_port()
    words = [sys.executable, "-m", "draftproof.cli.main", "serve", checkpoint, "--port", str(port), *options]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
    server = ServerProcess(f"http://127.0.0.1:{port}", process, log)
    try:
        _wait_for(server)
        yield server
    finally:
        server.stop()


def _wait_for(server: ServerProcess) -> None:
    limit = monotonic() + START_SECONDS
    while monotonic() < limit and server.process.poll() is None:
        try:
            with urlopen(f"{server.url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, ConnectionError, TimeoutError):
            sleep(0.1)
    last = server.log.read_text(errors="replace").splitlines()[-10:]
    raise RuntimeError("\n".join(["the server does not start:", *last]))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _family(number: int) -> list[int]:
    """A process and all its descendants that live."""
    found = [number]
    for task in Path(f"/proc/{number}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found.extend(_family(int(child)))
        except OSError:
            continue
    return found


def _resident(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def _name_of(number: int) -> str:
    try:
        return Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return "ended"
