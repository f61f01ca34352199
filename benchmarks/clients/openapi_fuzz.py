"""Requests made up from our own OpenAPI description, valid and not, against a running server.

    python -m benchmarks.clients.openapi_fuzz [--requests 1000]

Afterwards the server has to be healthy and idle, and no answer may be one that the description does not have.
The same checks as in `tests/server/test_fuzzing.py`, which sends a few to an application without engine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import schemathesis
from schemathesis.generation import GenerationMode

from benchmarks.clients.openapi_requests import CHECKS, INVALID, PATHS, VALID, send_all
from benchmarks.record import write_record
from benchmarks.watched_server import served

DEADLINE_SECONDS = 5
IDLE_SECONDS = 30
LOG = Path(tempfile.gettempdir()) / "draftproof-openapi-fuzz.log"
PASSED_ERRORS = (504,)
"""A valid request may ask for more tokens than there is time for."""


@dataclass
class Findings:
    """What came of the requests.

    Attributes:
        statuses: how often each answer came, by path and mode.
        faults: answers that break a check, one of each kind.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)


def main() -> int:
    options = _options()
    findings = Findings()
    with served(options.checkpoint, options.log, ("--request-seconds", str(DEADLINE_SECONDS))) as server:
        before = server.resident_megabytes()
        began = monotonic()
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        for path in PATHS:
            for mode in (VALID, INVALID):
                _send(schema[path]["POST"], mode, options.requests // (2 * len(PATHS)), findings)
        seconds = monotonic() - began
        left = _left(server.url)
        figures = {
            "requests": sum(findings.statuses.values()),
            "seconds": round(seconds, 1),
            "answers": dict(sorted(findings.statuses.items())),
            "faults": findings.faults,
            "left": left,
            "memory_megabytes": {"before": before, "after": server.resident_megabytes()},
            "exit_code": server.stop(),
        }
    print(json.dumps(figures, indent=1))
    print(write_record("client-openapi-fuzz", figures, {}))
    return 1 if findings.faults or left or figures["exit_code"] else 0


def _send(operation: Any, mode: GenerationMode, count: int, findings: Findings) -> None:
    """Send so many requests, and go on after faults."""

    def take(case: schemathesis.Case) -> None:
        answer = case.call(timeout=60)
        findings.statuses[f"{operation.label} {mode.value} {answer.status_code}"] += 1
        if answer.status_code in PASSED_ERRORS:
            return
        try:
            case.validate_response(answer, checks=list(CHECKS))
        except AssertionError as fault:
            kind = f"{operation.label} {mode.value} {answer.status_code} {type(fault).__name__}"
            findings.faults.setdefault(kind, f"{fault}\n{case.as_curl_command()}"[:4000])

    send_all(operation, mode, count, take)


def _left(url: str) -> str:
    """What the server still has of the requests, or what is wrong with it; empty when nothing is."""
    limit = monotonic() + IDLE_SECONDS
    while True:
        with urlopen(f"{url}/server_info", timeout=10) as answer:
            information = json.load(answer)
        cache = information["cache"]
        busy = {
            "requests": information["requests"],
            "running": information["load"]["running"],
            "waiting": information["load"]["waiting"],
            "slots": cache["slots_used"],
            "pages": cache["pages_used"],
        }
        state = information["health"]["state"]
        if state == "ready" and not any(busy.values()):
            return ""
        if monotonic() > limit:
            return f"{state} {information['health']['reasons']} {busy}"
        sleep(0.5)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="tiny")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--log", type=Path, default=LOG, help="what the server prints")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
