"""Faults and hostile clients against the whole server with the real engine: it stays up, nothing is left."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.poisoned_server import POISON_TOKEN, SEQUENCES
from tests.support.running_server import STOP_SECONDS, RunningServer, serving_process

COMPLETIONS = "/v1/completions"
SOUND = {"model": "tiny", "prompt": [900, 901, 902], "max_tokens": 40, "temperature": 0, "ignore_eos": True}
POISONED = {**SOUND, "prompt": [900, POISON_TOKEN, 902]}
LONG = {**SOUND, "max_tokens": 2000, "stream": True}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """The real engine with a token that spoils a request."""
    with serving_process([sys.executable, "-m", "tests.support.poisoned_server", "token"]) as running:
        yield running


@pytest.fixture(scope="module")
def sound_text(server: RunningServer) -> str:
    """What the sound request gets when all is well."""
    return text_of(post(server, SOUND))


@pytest.fixture(autouse=True)
def unharmed(server: RunningServer, sound_text: str) -> Iterator[None]:
    """After every test nothing is left in the server, it is well, and it answers as before."""
    yield
    limit = monotonic() + STOP_SECONDS
    while left := {name: value for name, value in left_in(server).items() if value}:
        assert monotonic() < limit, left
        sleep(0.05)
    assert httpx2.get(f"{server.url}/health").status_code == 200
    assert text_of(post(server, SOUND)) == sound_text


def post(server: RunningServer, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(server.url + COMPLETIONS, json=body, timeout=60)


def text_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def left_in(server: RunningServer) -> dict[str, int]:
    """What a server without requests has none of."""
    told = httpx2.get(f"{server.url}/server_info", timeout=60).json()
    cache, load = told["cache"], told["load"]
    return {
        "running": load["running"],
        "waiting": load["waiting"],
        "slots": cache["slots_used"],
        "pages": cache["pages_used"],
        "requests": len(told["requests"]),
    }


def metric(server: RunningServer, start: str) -> float:
    """The value of the one line of `/metrics` that begins so."""
    lines = httpx2.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    (found,) = [line for line in lines if line.startswith(start)]
    return float(found.rpartition(" ")[2])


def connection(server: RunningServer) -> socket.socket:
    place = urlsplit(server.url)
    assert place.hostname
    assert place.port
    return socket.create_connection((place.hostname, place.port), timeout=30)


def http_request(body: bytes, length: int | None = None) -> bytes:
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


def test_a_request_with_logits_that_are_not_numbers_ends_alone(
    server: RunningServer, sound_text: str
) -> None:
    before = metric(server, "draftproof_engine_faults_total")
    with ThreadPoolExecutor(SEQUENCES) as clients:
        sound = [clients.submit(post, server, {**SOUND, "seed": seed}) for seed in range(SEQUENCES - 1)]
        poisoned = post(server, POISONED)
        assert [text_of(one.result()) for one in sound] == [sound_text] * (SEQUENCES - 1)
    assert poisoned.status_code == 500
    assert poisoned.json()["error"]["type"] == "server_error"
    assert "no token can be chosen" in poisoned.json()["error"]["message"]
    assert metric(server, "draftproof_engine_faults_total") == before + 1
    assert metric(server, 'draftproof_requests_finished_total{model_name="tiny",reason="fault"}') >= 1
    assert metric(server, 'draftproof_alarm{kind="faults"') == 1
    health = httpx2.get(f"{server.url}/health", timeout=60)
    assert (health.status_code, health.json()["status"]) == (200, "degraded")


def test_a_stream_that_is_lost_before_its_first_token_is_an_error_and_no_stream(
    server: RunningServer,
) -> None:
    answer = post(server, {**POISONED, "stream": True})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "fault"


def test_a_storm_of_clients_that_leave_aborts_their_requests(server: RunningServer) -> None:
    def come_and_go(number: int) -> None:
        with connection(server) as client:
            client.sendall(http_request(json.dumps({**LONG, "seed": number}).encode()))
            if number % 2:
                client.recv(64)

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(come_and_go, range(40)))


def test_a_client_that_does_not_read_holds_nobody_else_back(server: RunningServer, sound_text: str) -> None:
    with connection(server) as sleeper:
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        sleeper.sendall(http_request(json.dumps(LONG).encode()))
        sleeper.recv(16)
        for _ in range(3):
            assert text_of(post(server, SOUND)) == sound_text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b'{"model": "tiny", "prompt": "\xff\xfe"}', 400, id="invalid UTF-8"),
        pytest.param(b'{"prompt": ' + b"[" * 100_000, 400, id="deep JSON"),
        pytest.param(b'{"prompt": "a", "temperature": NaN}', 400, id="no JSON number"),
        pytest.param(b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", 400, id="huge number"),
        pytest.param(b"", 400, id="nothing"),
        pytest.param(b'{"model": "tiny", "prompt": "' + b"a" * (17 << 20) + b'"}', 413, id="huge body"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_in_openais_shape(
    server: RunningServer, body: bytes, status: int
) -> None:
    answer = httpx2.post(
        server.url + COMPLETIONS, content=body, headers={"content-type": "application/json"}, timeout=60
    )
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(http_request(b'{"prompt": "half', length=500), id="half a body"),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\nContent-Le", id="half a head"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, id="TLS to a plain port"),
        pytest.param(http_request(b"{}", length=-5), id="negative length"),
    ],
)
def test_a_client_that_speaks_half_or_no_http_harms_nobody(server: RunningServer, raw: bytes) -> None:
    with connection(server) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(1024)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
