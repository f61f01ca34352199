"""The engine's status as metric families: draftproof's own names, vLLM's, SGLang's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from draftproof.engine.status import AlarmKind, EngineStatus
from draftproof.server.metric_names import MetricsDialect
from draftproof.serving.client import Health, HealthState


@dataclass(frozen=True)
class EngineView:
    """What is published of the engine at one moment.

    Attributes:
        model: served name, a label of every metric.
        status: of the engine.
        health: of the engine.
        tokens_per_second: output tokens of all requests, lately.
    """

    model: str
    status: EngineStatus
    health: Health
    tokens_per_second: float

    def counter(self, name: str, documentation: str, value: float) -> Metric:
        """A counter of the whole engine; the exposition adds `_total` to its name."""
        family = CounterMetricFamily(name, documentation, labels=("model_name",))
        family.add_metric((self.model,), value)
        return family

    def gauge(self, name: str, documentation: str, value: float) -> Metric:
        """A level of the whole engine."""
        family = GaugeMetricFamily(name, documentation, labels=("model_name",))
        family.add_metric((self.model,), value)
        return family

    def gauges(
        self, name: str, documentation: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]
    ) -> Metric:
        """A level by further labels; each row is their values and the level."""
        family = GaugeMetricFamily(name, documentation, labels=("model_name", *labels))
        for *values, level in rows:
            family.add_metric((self.model, *map(str, values)), float(str(level)))
        return family

    def by_position(self, name: str, documentation: str, counts: tuple[int, ...]) -> Metric:
        """A counter for each position in a window, the first draft's being 0."""
        family = CounterMetricFamily(name, documentation, labels=("model_name", "position"))
        for position, count in enumerate(counts):
            family.add_metric((self.model, str(position)), count)
        return family


def own_families(view: EngineView) -> Iterator[Metric]:
    """Under draftproof's names."""
    yield from _load(view)
    yield from _pools(view)
    yield from _totals(view)
    yield from _acceptance(view)
    yield from _arms(view)
    yield from _condition(view)


def compatible_families(dialect: MetricsDialect, view: EngineView) -> Iterator[Metric]:
    """Under another stack's names, where the meaning is the same."""
    return _DIALECTS[dialect](view)


def _load(view: EngineView) -> Iterator[Metric]:
    status = view.status
    yield view.gauge("draftproof_requests_running", "Sequences that hold a slot.", status.running)
    yield view.gauge("draftproof_requests_waiting", "Sequences that wait for a slot.", status.waiting)
    yield view.gauge(
        "draftproof_output_tokens_per_second",
        "Output tokens of all requests over the latest seconds.",
        view.tokens_per_second,
    )


def _pools(view: EngineView) -> Iterator[Metric]:
    status = view.status
    for name, documentation, level in (
        ("pages_used", "Attention pages of running sequences.", status.pages_used),
        ("pages_cached", "Attention pages that only the prefix cache holds.", status.pages_cached),
        ("pages_capacity", "Attention pages that exist.", status.pages_total),
        ("slots_used", "State slots of running sequences.", status.slots_used),
        ("slots_capacity", "State slots that exist.", status.slots_total),
        ("snapshots_used", "Recurrent states that the prefix cache holds.", status.snapshots_used),
        ("snapshots_capacity", "Recurrent states that the prefix cache can hold.", status.snapshots_total),
    ):
        yield view.gauge(f"draftproof_{name}", documentation, level)


def _totals(view: EngineView) -> Iterator[Metric]:
    status = view.status
    for name, documentation, value in (
        ("prompt_tokens_computed", "Prompt tokens computed; those found kept are not.", status.prompt_tokens),
        ("output_tokens", "Output tokens.", status.generated_tokens),
        ("prefix_queried_tokens", "Prompt tokens looked up in the cache.", status.prefix_queried_tokens),
        ("prefix_hit_tokens", "Prompt tokens whose state was kept.", status.prefix_hit_tokens),
        ("preemptions", "Sequences put back to be computed again.", status.preemptions),
        ("engine_steps", "Steps of the engine.", status.steps),
        ("engine_faults", "Requests lost to a fault of the engine.", status.faults),
    ):
        yield view.counter(f"draftproof_{name}", documentation, value)


def _acceptance(view: EngineView) -> Iterator[Metric]:
    """Counts by position, each with its own denominator, so that rates stay right when K varies."""
    counts = view.status.acceptance
    yield view.counter(
        "draftproof_verify_passes", "Verify passes; accept length is 1 + accepted / passes.", counts.passes
    )
    yield view.by_position(
        "draftproof_drafts_proposed", "Passes that had a draft at this position.", counts.proposed
    )
    yield view.by_position(
        "draftproof_drafts_reached", "Those whose drafts before it were all accepted.", counts.reached
    )
    yield view.by_position(
        "draftproof_drafts_accepted", "Those whose draft there was accepted too.", counts.accepted
    )
    recent = view.status.recent_acceptance
    yield view.gauge(
        "draftproof_recent_accept_length",
        "1 + accepted / passes over the latest passes; 0 before the first.",
        recent.accept_length,
    )
    yield view.gauge(
        "draftproof_recent_acceptance_rate",
        "Accepted / proposed over the latest passes.",
        recent.acceptance_rate,
    )


def _arms(view: EngineView) -> Iterator[Metric]:
    labels = ("batch", "draft_tokens")
    arms = view.status.arms
    yield view.gauges(
        "draftproof_arm_step_seconds",
        "Measured time of a step, by batch size and K.",
        labels,
        ((arm.batch, arm.draft_tokens, arm.step_seconds) for arm in arms),
    )
    yield view.gauges(
        "draftproof_arm_tokens_per_second",
        "Tokens a second of one sequence to be expected, by batch size and K; K = 0 is plain decoding.",
        labels,
        ((arm.batch, arm.draft_tokens, arm.tokens_per_second) for arm in arms),
    )
    yield view.gauges(
        "draftproof_arm_chosen",
        "1 for the K in use at a batch size.",
        labels,
        ((arm.batch, arm.draft_tokens, int(arm.is_chosen)) for arm in arms),
    )


def _condition(view: EngineView) -> Iterator[Metric]:
    state = view.health.state
    yield view.gauges(
        "draftproof_health",
        "1 for the state that the server is in.",
        ("state",),
        ((one.value, int(one is state)) for one in HealthState),
    )
    on = {alarm.kind for alarm in view.status.alarms}
    yield view.gauges(
        "draftproof_alarm", "1 while an alarm is on.", ("kind",), ((k.value, int(k in on)) for k in AlarmKind)
    )


def _vllm(view: EngineView) -> Iterator[Metric]:
    status, counts = view.status, view.status.acceptance
    yield view.gauge("vllm:num_requests_running", "Sequences that hold a slot.", status.running)
    yield view.gauge("vllm:num_requests_waiting", "Sequences that wait for a slot.", status.waiting)
    yield view.gauge(
        "vllm:kv_cache_usage_perc",
        "Share of attention pages in use, 0 to 1.",
        _share(status.pages_used, status.pages_total),
    )
    yield view.counter(
        "vllm:prefix_cache_queries", "Prompt tokens looked up in the cache.", status.prefix_queried_tokens
    )
    yield view.counter("vllm:prefix_cache_hits", "Prompt tokens found there.", status.prefix_hit_tokens)
    yield view.counter("vllm:num_preemptions", "Sequences put back to be computed again.", status.preemptions)
    yield view.counter(
        "vllm:prompt_tokens",
        "Prompt tokens, kept ones included.",
        status.prompt_tokens + status.prefix_hit_tokens,
    )
    yield view.counter("vllm:generation_tokens", "Output tokens.", status.generated_tokens)
    drafted_passes = counts.proposed[0] if counts.proposed else 0
    yield view.counter("vllm:spec_decode_num_drafts", "Passes that had drafts.", drafted_passes)
    yield view.counter("vllm:spec_decode_num_draft_tokens", "Drafts.", sum(counts.proposed))
    yield view.counter("vllm:spec_decode_num_accepted_tokens", "Accepted drafts.", sum(counts.accepted))
    yield view.by_position(
        "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted drafts by position.", counts.accepted
    )


def _sglang(view: EngineView) -> Iterator[Metric]:
    status, recent = view.status, view.status.recent_acceptance
    for name, documentation, level in (
        ("num_running_reqs", "Sequences that hold a slot.", float(status.running)),
        ("num_queue_reqs", "Sequences that wait for a slot.", float(status.waiting)),
        ("token_usage", "Share of attention pages in use.", _share(status.pages_used, status.pages_total)),
        ("mamba_usage", "Share of state slots in use.", _share(status.slots_used, status.slots_total)),
        ("gen_throughput", "Output tokens a second, lately.", view.tokens_per_second),
        (
            "cache_hit_rate",
            "Share of prompt tokens whose state was kept.",
            _share(status.prefix_hit_tokens, status.prefix_queried_tokens),
        ),
        ("spec_accept_length", "Tokens a verify pass, lately.", recent.accept_length),
        ("spec_accept_rate", "Accepted / proposed drafts, lately.", recent.acceptance_rate),
    ):
        yield view.gauge(f"sglang:{name}", documentation, level)
    yield view.counter("sglang:spec_verify_calls", "Verify passes.", status.acceptance.passes)
    yield view.counter(
        "sglang:prompt_tokens",
        "Prompt tokens, kept ones included.",
        status.prompt_tokens + status.prefix_hit_tokens,
    )
    yield view.counter("sglang:generation_tokens", "Output tokens.", status.generated_tokens)
    yield view.counter("sglang:cached_tokens", "Prompt tokens found kept.", status.prefix_hit_tokens)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


_DIALECTS: dict[MetricsDialect, Callable[[EngineView], Iterator[Metric]]] = {
    MetricsDialect.VLLM: _vllm,
    MetricsDialect.SGLANG: _sglang,
}
