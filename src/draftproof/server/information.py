"""What `/server_info` answers: everything that the page shows, and programs may read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from draftproof import __version__
from draftproof.engine.status import EngineStatus
from draftproof.server.live_links import with_live_links
from draftproof.server.running_requests import RunningRequest
from draftproof.server.served_chain import ServedChain
from draftproof.serving.client import Health
from draftproof.serving.messages import EngineReady
from draftproof.speculation.acceptance import AcceptanceCounts


@dataclass(frozen=True)
class ServerMoment:
    """All that is known at one moment.

    Attributes:
        model_names: that requests may use.
        ready: what the engine said at its start.
        status: of the engine.
        health: of the engine.
        chain: evidence about the checkpoint; None when none was gathered.
        requests: in flight.
        tokens_per_second: output tokens of all requests, lately.
        now: on the clock of the requests.
        uptime_seconds: since the server was made.
    """

    model_names: tuple[str, ...]
    ready: EngineReady
    status: EngineStatus
    health: Health
    chain: ServedChain | None
    requests: tuple[RunningRequest, ...]
    tokens_per_second: float
    now: float
    uptime_seconds: float


def server_information(moment: ServerMoment) -> dict[str, Any]:
    """The answer, made of JSON's types."""
    status = moment.status
    return {
        "name": "draftproof",
        "version": __version__,
        "uptime_seconds": round(moment.uptime_seconds, 1),
        "model": {"names": list(moment.model_names), **_engine(moment.ready)},
        "health": {"state": moment.health.state.value, "reasons": list(moment.health.reasons)},
        "chain": _chain(moment),
        "speculation": _speculation(moment.ready, status),
        "load": {
            "running": status.running,
            "waiting": status.waiting,
            "output_tokens_per_second": round(moment.tokens_per_second, 2),
        },
        "cache": _cache(status),
        "counters": _counters(status),
        "alarms": _plain([asdict(alarm) for alarm in status.alarms]),
        "requests": [_request(request, moment.now) for request in moment.requests],
        # Where SGLang's tools look for it.
        "internal_states": [{"avg_spec_accept_length": status.acceptance.accept_length}],
    }


def _engine(ready: EngineReady) -> dict[str, Any]:
    return {
        "device": ready.device,
        "max_length": ready.max_length,
        "max_sequences": ready.max_sequences,
        "vocabulary_size": ready.vocabulary_size,
        "simulated_accept_length": ready.simulated_accept_length,
        "load_lines": list(ready.load_lines),
    }


def _chain(moment: ServerMoment) -> dict[str, Any] | None:
    if moment.chain is None:
        return None
    shown: dict[str, Any] = _plain(asdict(with_live_links(moment.chain, moment.ready, moment.status)))
    return shown


def _speculation(ready: EngineReady, status: EngineStatus) -> dict[str, Any]:
    return {
        "drafter": ready.drafter_name,
        "max_draft_tokens": ready.draft_tokens,
        "draft_policy": ready.draft_policy,
        "total": _acceptance(status.acceptance),
        "recent": _acceptance(status.recent_acceptance),
        "arms": [asdict(arm) for arm in status.arms],
    }


def _acceptance(counts: AcceptanceCounts) -> dict[str, Any]:
    return {
        "passes": counts.passes,
        "accept_length": round(counts.accept_length, 4),
        "acceptance_rate": round(counts.acceptance_rate, 4),
        "positions": [
            {
                "proposed": proposed,
                "reached": reached,
                "accepted": accepted,
                "rate": round(rate, 4),
                "conditional_rate": round(conditional, 4),
            }
            for proposed, reached, accepted, rate, conditional in zip(
                counts.proposed,
                counts.reached,
                counts.accepted,
                counts.unconditional_rates,
                counts.conditional_rates,
                strict=True,
            )
        ],
    }


def _cache(status: EngineStatus) -> dict[str, int]:
    return {
        "pages_used": status.pages_used,
        "pages_cached": status.pages_cached,
        "pages_total": status.pages_total,
        "slots_used": status.slots_used,
        "slots_total": status.slots_total,
        "snapshots_used": status.snapshots_used,
        "snapshots_total": status.snapshots_total,
        "prefix_queried_tokens": status.prefix_queried_tokens,
        "prefix_hit_tokens": status.prefix_hit_tokens,
    }


def _counters(status: EngineStatus) -> dict[str, int]:
    return {
        "prompt_tokens_computed": status.prompt_tokens,
        "output_tokens": status.generated_tokens,
        "steps": status.steps,
        "preemptions": status.preemptions,
        "faults": status.faults,
    }


def _request(request: RunningRequest, now: float) -> dict[str, Any]:
    """One request in flight; nothing of its text."""
    usage = request.usage
    first, last = request.first_token_at, request.last_token_at
    seconds = last - first if first is not None and last is not None else 0.0
    completion = usage.completion_tokens if usage is not None else 0
    return {
        "id": request.request_id,
        "age_seconds": round(now - request.arrived_at, 2),
        "draft_tokens": request.draft_tokens,
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": usage.cached_tokens if usage is not None else 0,
        "output_tokens": completion,
        "tokens_per_second": round((completion - request.first_tokens) / seconds, 1) if seconds else None,
        "accept_length": round(usage.acceptance.accept_length, 2) if usage is not None else None,
    }


def _plain(value: Any) -> Any:
    """With enumerations as their words."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
