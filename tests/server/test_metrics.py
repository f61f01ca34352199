"""Metrics: what requests and the engine's status become in an exposition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from draftproof.engine.status import Alarm, AlarmKind, DraftArm, EngineStatus
from draftproof.runtime.sampling import SamplingParameters
from draftproof.server.app import create_app
from draftproof.server.metric_names import MetricsDialect
from draftproof.server.observability import Observability, observe
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import GenerationFailed, Health, HealthState, QueueFull
from draftproof.serving.messages import FailureKind, GenerationRequest
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import Answer, FakeEngineClient, Piece

REQUEST = GenerationRequest("r1", (5, 6, 7), SamplingParameters())


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def samples(seen: Observability, tokenizer: Tokenizer, settings: ServerSettings) -> dict[str, float]:
    """What `/metrics` answers, by name and labels other than the model's."""
    with TestClient(create_app(seen.client, tokenizer, None, settings, routers=seen.routers)) as http:
        text = http.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("model_name") == "tiny", sample
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}[{labels}]" if labels else sample.name] = sample.value
    return found


async def take_all(seen: Observability, request: GenerationRequest = REQUEST) -> list[str]:
    """Run a request to its end."""
    return [chunk.text async for chunk in seen.client.stream(request)]


def test_a_request_is_counted_by_its_end_and_its_times_are_kept(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    clock = Clock()
    engine.answer = lambda request: Answer(
        (Piece("a", (1,)), Piece("bcd", (2, 3, 4), accepted=2)), finish_reason=FinishReason.LENGTH
    )
    seen = observe(engine, settings, clock=clock)

    async def timed() -> None:
        clock.now = 100.0
        async for _ in seen.client.stream(REQUEST):
            clock.now += 0.3

    clock.now = 100.0
    asyncio.run(timed())
    found = samples(seen, tokenizer, settings)
    assert found["draftproof_requests_finished_total[reason=length]"] == 1
    assert found["draftproof_requests_finished_total[reason=stop]"] == 0
    assert found["draftproof_time_to_first_token_seconds_count"] == 1
    assert found["draftproof_inter_token_latency_seconds_count"] == 3
    assert found["draftproof_inter_token_latency_seconds_sum"] == pytest.approx(0.3)
    assert found["draftproof_time_per_output_token_seconds_sum"] == pytest.approx(0.1)
    assert found["draftproof_request_decode_seconds_sum"] == pytest.approx(0.3)
    assert found["draftproof_request_output_tokens_sum"] == 4
    assert found["draftproof_request_prompt_tokens_sum"] == 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (QueueFull("full", 3), "queue_full"),
        *((GenerationFailed(kind, "no"), kind.value) for kind in FailureKind),
    ],
)
def test_a_request_without_an_answer_is_counted_by_its_reason_and_not_timed(
    engine: FakeEngineClient,
    tokenizer: Tokenizer,
    settings: ServerSettings,
    error: Exception,
    reason: str,
) -> None:
    engine.answer = lambda request: Answer((), error=error)
    seen = observe(engine, settings)
    with pytest.raises(type(error)):
        asyncio.run(take_all(seen))
    found = samples(seen, tokenizer, settings)
    assert found[f"draftproof_requests_finished_total[reason={reason}]"] == 1
    assert found["draftproof_request_seconds_count"] == 0


def test_a_client_that_goes_away_aborts_the_engines_request_and_counts_as_such(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    engine.answer = lambda request: Answer((Piece("a"),), never_ends=True)
    seen = observe(engine, settings)

    async def leave() -> None:
        stream = cast(AsyncIterator[object], seen.client.stream(REQUEST))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert engine.aborted == ["r1"]

    asyncio.run(leave())
    assert samples(seen, tokenizer, settings)["draftproof_requests_finished_total[reason=abort]"] == 1


def test_acceptance_by_position_keeps_each_positions_own_denominator_when_k_varies(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    counts = sum(
        (
            AcceptanceCounts.of_pass(drafts, accepted, accepted + 1)
            for drafts, accepted in ((3, 3), (1, 1), (0, 0))
        ),
        AcceptanceCounts(),
    )
    engine.status = EngineStatus(acceptance=counts)
    found = samples(observe(engine, settings), tokenizer, settings)
    assert found["draftproof_verify_passes_total"] == 3
    assert [found[f"draftproof_drafts_proposed_total[position={at}]"] for at in range(3)] == [2, 1, 1]
    assert [found[f"draftproof_drafts_accepted_total[position={at}]"] for at in range(3)] == [2, 1, 1]


def test_health_alarms_and_arms_are_levels_by_label(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    engine.health = Health(HealthState.DEGRADED, ("collapsed",))
    engine.status = EngineStatus(
        arms=(DraftArm(1, 0, 0.01, 100.0, False), DraftArm(1, 2, 0.014, 180.0, True)),
        alarms=(Alarm(AlarmKind.COLLAPSED_ACCEPTANCE, "accept length 1.0"),),
    )
    found = samples(observe(engine, settings), tokenizer, settings)
    assert found["draftproof_health[state=degraded]"] == 1
    assert found["draftproof_health[state=ready]"] == 0
    assert found["draftproof_alarm[kind=collapsed_acceptance]"] == 1
    assert found["draftproof_alarm[kind=repetition]"] == 0
    assert found["draftproof_arm_tokens_per_second[batch=1,draft_tokens=2]"] == 180
    assert found["draftproof_arm_chosen[batch=1,draft_tokens=2]"] == 1


VLLM_NAMES = {
    "vllm:num_requests_running": 2,
    "vllm:num_requests_waiting": 5,
    "vllm:kv_cache_usage_perc": 0.25,
    "vllm:prompt_tokens_total": 120,
    "vllm:generation_tokens_total": 40,
    "vllm:prefix_cache_queries_total": 110,
    "vllm:prefix_cache_hits_total": 20,
    "vllm:spec_decode_num_drafts_total": 1,
    "vllm:spec_decode_num_draft_tokens_total": 3,
    "vllm:spec_decode_num_accepted_tokens_total": 2,
    "vllm:spec_decode_num_accepted_tokens_per_pos_total[position=1]": 1,
    "vllm:time_to_first_token_seconds_count": 1,
    "vllm:e2e_request_latency_seconds_count": 1,
    "vllm:request_success_total[finished_reason=stop]": 1,
}
SGLANG_NAMES = {
    "sglang:num_running_reqs": 2,
    "sglang:num_queue_reqs": 5,
    "sglang:token_usage": 0.25,
    "sglang:mamba_usage": 0.5,
    "sglang:cache_hit_rate": pytest.approx(2 / 11),
    "sglang:spec_accept_length": 2.0,
    "sglang:spec_verify_calls_total": 2,
    "sglang:time_to_first_token_seconds_count": 1,
}


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [(MetricsDialect.VLLM, VLLM_NAMES), (MetricsDialect.SGLANG, SGLANG_NAMES), (None, {})],
)
def test_another_stacks_names_stand_beside_our_own_when_asked_for(
    engine: FakeEngineClient,
    tokenizer: Tokenizer,
    settings: ServerSettings,
    dialect: MetricsDialect | None,
    expected: dict[str, float],
) -> None:
    counts = AcceptanceCounts.of_pass(3, 2, 3) + AcceptanceCounts.of_pass(0, 0, 1)
    engine.status = EngineStatus(
        running=2,
        waiting=5,
        pages_used=4,
        pages_total=16,
        slots_used=2,
        slots_total=4,
        prompt_tokens=100,
        generated_tokens=40,
        prefix_queried_tokens=110,
        prefix_hit_tokens=20,
        acceptance=counts,
        recent_acceptance=counts,
    )
    seen = observe(engine, settings, dialect=dialect)
    asyncio.run(take_all(seen))
    found = samples(seen, tokenizer, settings)
    assert {name: found.get(name) for name in expected} == expected
    assert found["draftproof_requests_running"] == 2
    foreign = {name.split(":")[0] for name in found if ":" in name}
    assert foreign == ({dialect.value} if dialect else set())


def test_tokens_a_second_are_those_of_the_latest_seconds(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    clock = Clock()
    seen = observe(engine, settings, clock=clock)
    asyncio.run(take_all(seen))
    assert samples(seen, tokenizer, settings)["draftproof_output_tokens_per_second"] == pytest.approx(2 / 5)
    clock.now += 60
    assert samples(seen, tokenizer, settings)["draftproof_output_tokens_per_second"] == 0


def test_scrapers_may_ask_with_head_and_for_open_metrics(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    seen = observe(replace(engine), settings)
    with TestClient(create_app(seen.client, tokenizer, None, settings, routers=seen.routers)) as http:
        assert http.head("/metrics").status_code == 200
        plain = http.get("/metrics")
        open_metrics = http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert "_created" not in plain.text + open_metrics.text
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
