"""A server's whole life, as a process with its engine: answers, drain, crash, death of either process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from tests.support.running_server import (
    STOP_SECONDS,
    RunningServer,
    ServerDidNotStart,
    running_server,
    scripted_server,
    wait_until_gone,
)

LONG = {"prompt": "Once upon a time", "max_tokens": 600, "ignore_eos": True, "stream": True}
"""Takes a second or two."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--max-num-seqs", "2") as running:
        yield running


def complete(server: RunningServer, **fields: Any) -> httpx2.Response:
    body = {"model": "tiny", "prompt": "The", "max_tokens": 8, "temperature": 0, **fields}
    return httpx2.post(f"{server.url}/v1/completions", json=body, timeout=STOP_SECONDS)


class Reading(threading.Thread):
    """Reads a long stream; `events` are what came, `error` why it broke off."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.events: list[str] = []
        self.error: Exception | None = None
        self.begun = threading.Event()
        self.start()
        assert self.begun.wait(STOP_SECONDS)

    @property
    def last_error(self) -> str:
        """The error that the stream told of; empty when it told of none."""
        errors = [event for event in self.events if '"error"' in event]
        return errors[-1] if errors else ""

    def run(self) -> None:
        body = {"model": "tiny", **LONG}
        try:
            with httpx2.stream("POST", f"{self.server.url}/v1/completions", json=body, timeout=30) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        self.events.append(line.removeprefix("data: "))
                        self.begun.set()
        except httpx2.HTTPError as error:
            self.error = error
        finally:
            self.begun.set()


def health(server: RunningServer) -> tuple[int, str]:
    answer = httpx2.get(f"{server.url}/health", timeout=STOP_SECONDS)
    return answer.status_code, answer.json()["status"]


def test_it_says_what_runs_and_how_to_try_it(server: RunningServer) -> None:
    for part in ("link 1 config", "proven", "nextn, up to 3 tokens", "4,096 tokens, 2 sequences", "curl "):
        assert part in server.output
    assert "loading tiny" in server.log


def test_what_it_says_to_try_works(server: RunningServer) -> None:
    command = server.output.partition("Try it: ")[2].strip()
    answer = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=STOP_SECONDS)
    assert json.loads(answer.stdout)["choices"][0]["message"]["role"] == "assistant"


def test_it_answers_and_is_healthy(server: RunningServer) -> None:
    answer = complete(server)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert health(server) == (200, "ready")


def test_a_taken_port_is_one_line_and_the_code_of_the_environment(server: RunningServer) -> None:
    port = server.url.rpartition(":")[2]
    refused = pytest.raises(ServerDidNotStart, match=r"exit code 4: error: the address .* is in use")
    with refused, running_server("--port", port):
        pass


def test_an_engine_that_cannot_be_made_is_one_line_with_its_own_exit_code() -> None:
    refused = pytest.raises(ServerDidNotStart, match=r"exit code 2: (?s:.*)error: a context of 99999")
    with refused, running_server("--max-model-len", "99999"):
        pass


def test_on_a_signal_it_finishes_what_runs_takes_nothing_new_and_ends_well() -> None:
    with scripted_server() as server:
        engine = server.engine_pid
        reading = Reading(server)
        server.process.send_signal(signal.SIGTERM)
        _until(lambda: health(server) == (503, "draining"))
        assert complete(server).status_code == 503
        assert server.process.wait(STOP_SECONDS) == 0
        reading.join(STOP_SECONDS)
        assert reading.error is None
        assert reading.events[-1] == "[DONE]"
        # Steps that wait for each other come as one event: what counts is how the output ended.
        assert json.loads(reading.events[-2])["choices"][0]["finish_reason"] == "length"
        wait_until_gone(engine)


def test_a_second_signal_ends_it_at_once() -> None:
    with scripted_server("--step-seconds", "0.1") as server:
        engine = server.engine_pid
        Reading(server)
        server.process.send_signal(signal.SIGINT)
        _until(lambda: "SIGINT" in server.log)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(2) == 128 + signal.SIGINT
        wait_until_gone(engine)


def test_when_the_engine_dies_requests_end_and_health_fails_and_it_still_ends_well() -> None:
    with scripted_server() as server:
        reading = Reading(server)
        os.kill(server.engine_pid, signal.SIGKILL)
        reading.join(STOP_SECONDS)
        assert not reading.is_alive()
        assert "SIGKILL" in reading.last_error
        assert health(server) == (503, "failed")
        assert complete(server).status_code == 503
        server.process.terminate()
        assert server.process.wait(STOP_SECONDS) == 0


def test_after_a_failed_step_it_goes_on_and_what_outlasts_its_patience_at_the_end_is_told() -> None:
    with scripted_server("--fails-at", "3", "--drain-seconds", "0.1") as server:
        failed = Reading(server)
        failed.join(STOP_SECONDS)
        assert "RuntimeError: broken" in failed.last_error
        assert "Traceback" in server.log
        assert complete(server).status_code == 200
        assert health(server) == (200, "ready")
        unfinished = Reading(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(STOP_SECONDS) == 0
        unfinished.join(STOP_SECONDS)
        assert "shutting down" in unfinished.last_error


def test_when_it_is_killed_its_engine_goes_too_even_in_the_middle_of_a_step() -> None:
    with scripted_server("--hangs-at", "1") as server:
        engine = server.engine_pid
        Reading(server)
        server.process.kill()
        wait_until_gone(engine)


def _until(happened: Any) -> None:
    limit = monotonic() + STOP_SECONDS
    while not happened():
        assert monotonic() < limit
        sleep(0.01)
