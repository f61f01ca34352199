"""What a soak's record holds, and what in it is a fault."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.soak_traffic import Tally

ALLOWED_GROWTH = 0.03
"""Of memory between the second quarter and the last."""


@dataclass(frozen=True)
class Sample:
    """The server at one moment.

    Attributes:
        seconds: since the traffic began.
        megabytes: resident, by process; empty for a server that somebody else started.
        running: sequences.
        waiting: likewise.
        tokens: output tokens since the server's start.
    """

    seconds: float
    megabytes: dict[str, float]
    running: int
    waiting: int
    tokens: int


def left_in(information: dict[str, Any]) -> dict[str, int]:
    """What a server without requests has none of."""
    cache, load = information["cache"], information["load"]
    return {
        "running": load["running"],
        "waiting": load["waiting"],
        "pages_used": cache["pages_used"],
        "slots_used": cache["slots_used"],
        "requests_in_flight": len(information["requests"]),
    }


def figures_of(
    tally: Tally, samples: list[Sample], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    """What the run was, and what it left.

    Args:
        tally: of the clients.
        samples: of the server, in order; at least one.
        before: `/server_info` before the traffic.
        after: likewise, after it.
    """
    whole = len(tally.seconds)
    seconds = samples[-1].seconds
    return {
        "minutes": round(seconds / 60, 2),
        "answers_compared": whole,
        "answers_by_kind": dict(tally.kinds),
        "requests_by_manner": dict(tally.manners),
        "mismatch_count": tally.mismatch_count,
        "mismatches": tally.mismatches,
        "errors": dict(tally.errors),
        "queue_full": tally.retries,
        "answer_tokens_per_second": round(tally.tokens / seconds, 1),
        "answer_seconds_median": median(tally.seconds) if whole else None,
        "megabytes_second_quarter": _memory(samples, 0.25, 0.5),
        "megabytes_last_quarter": _memory(samples, 0.75, 1.0),
        "left_in_server": left_in(after),
        "health": after["health"],
        "alarms": after["alarms"],
        "counters": {name: value - before["counters"][name] for name, value in after["counters"].items()},
        "prefix_hit_rate": round(
            after["cache"]["prefix_hit_tokens"] / max(after["cache"]["prefix_queried_tokens"], 1), 3
        ),
        "acceptance": after["speculation"]["total"],
    }


def _memory(samples: list[Sample], begin: float, end: float) -> float:
    """Median of all processes together over a part of the run."""
    last = samples[-1].seconds
    part = [
        sum(sample.megabytes.values()) for sample in samples if begin * last <= sample.seconds <= end * last
    ]
    return round(median(part), 1) if part else 0.0


def faults_of(figures: dict[str, Any]) -> list[str]:
    """What must not be."""
    found = []
    if not figures["answers_compared"]:
        found.append("no whole answer came")
    if figures["mismatch_count"]:
        found.append(f"{figures['mismatch_count']} answers differ from the same request alone")
    if figures["errors"]:
        found.append(f"{sum(figures['errors'].values())} requests failed: {figures['errors']}")
    left = {name: value for name, value in figures["left_in_server"].items() if value}
    if left:
        found.append(f"left in the server: {left}")
    early, late = figures["megabytes_second_quarter"], figures["megabytes_last_quarter"]
    if late > early * (1 + ALLOWED_GROWTH):
        found.append(f"memory grew from {early} to {late} MB")
    if figures["health"]["state"] not in ("ready", "degraded"):
        found.append(f"health is {figures['health']}")
    if figures["exit_code_after_sigterm"] not in (0, None):
        found.append(f"exit code {figures['exit_code_after_sigterm']} after SIGTERM")
    return found
