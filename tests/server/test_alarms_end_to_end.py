"""A head whose drafts are never accepted: answers stay right, and everybody who looks is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.support.poisoned_server import SEQUENCES
from tests.support.running_server import RunningServer, serving_process

BODY = {"model": "tiny", "prompt": [900, 901, 902], "max_tokens": 70, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """With a spoiled head, after more than 200 passes with drafts."""
    with serving_process([sys.executable, "-m", "tests.support.poisoned_server", "head"]) as running:
        with ThreadPoolExecutor(SEQUENCES) as clients:
            list(clients.map(lambda _: answer(running), range(SEQUENCES)))
        yield running


def answer(server: RunningServer, **fields: Any) -> dict[str, Any]:
    answered = httpx2.post(f"{server.url}/v1/completions", json={**BODY, **fields}, timeout=60)
    assert answered.status_code == 200, answered.text
    return dict(answered.json())


def test_the_text_is_that_without_drafts(server: RunningServer) -> None:
    drafted, plain = answer(server), answer(server, speculative=False)
    assert drafted["choices"] == plain["choices"]
    assert drafted["metrics"]["speculative_decoding"]["mean_acceptance_length"] == 1.0


def test_health_is_degraded_and_says_why(server: RunningServer) -> None:
    health = httpx2.get(f"{server.url}/health", timeout=60)
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert "accept" in health.json()["reasons"][0]


def test_metrics_and_the_chain_show_it(server: RunningServer) -> None:
    metrics = httpx2.get(f"{server.url}/metrics", timeout=60).text
    assert 'draftproof_alarm{kind="collapsed_acceptance",model_name="tiny"} 1.0' in metrics
    assert 'draftproof_recent_accept_length{model_name="tiny"} 1.0' in metrics
    told = httpx2.get(f"{server.url}/server_info", timeout=60).json()
    states = {link["name"]: link["state"] for link in told["chain"]["links"]}
    assert (states["launch"], states["function"], states["speed"]) == ("live", "disproved", "not run")
    assert told["alarms"][0]["request_ids"]
