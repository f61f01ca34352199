"""What `/metrics` answers: counters and levels of the engine, times of the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from draftproof.server.metric_names import OWN_HISTOGRAMS, HistogramName, MetricsDialect, histograms_of
from draftproof.server.request_times import Duration, Observation, RequestEnd
from draftproof.server.running_requests import RunningRequests
from draftproof.server.status_families import EngineView, compatible_families, own_families
from draftproof.serving.client import EngineClient


@dataclass(frozen=True)
class Exposition:
    """An answer to a scrape.

    Attributes:
        body: the metrics.
        content_type: how they are written.
    """

    body: bytes
    content_type: str


class ServerMetrics:
    """All metrics of one server, in a registry of its own.

    Args:
        client: whose status is published.
        model: served name, a label of every metric.
        requests: in flight, for the rate of tokens.
        dialect: whose names are published beside draftproof's own; None for none.
        clock: the one that `requests` is kept by.
    """

    def __init__(
        self,
        client: EngineClient,
        model: str,
        requests: RunningRequests,
        dialect: MetricsDialect | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._model = model
        names = OWN_HISTOGRAMS + (histograms_of(dialect) if dialect is not None else ())
        self._histograms: dict[Duration, list[Histogram]] = {duration: [] for duration in Duration}
        for name in names:
            self._histograms[name.duration].append(self._histogram(name))
        self._ends = self._end_counter(
            "draftproof_requests_finished", "Requests by how they ended.", "reason"
        )
        for end in RequestEnd:
            self._ends.labels(model, end.value)
        self._answers = (
            self._end_counter(
                "vllm:request_success", "Answered requests by how they ended.", "finished_reason"
            )
            if dialect is MetricsDialect.VLLM
            else None
        )
        self._registry.register(_StatusCollector(client, model, requests, dialect, clock))

    def observe(self, observation: Observation) -> None:
        """Add a value to its distribution."""
        for histogram in self._histograms[observation.duration]:
            for _ in range(observation.count):
                histogram.observe(observation.value)

    def count_end(self, end: RequestEnd) -> None:
        """One request ended."""
        self._ends.labels(self._model, end.value).inc()
        if self._answers is not None and end.is_answer:
            self._answers.labels(self._model, end.value).inc()

    def exposition(self, accept: str = "") -> Exposition:
        """All of it in the format that a scraper asks for.

        Args:
            accept: the request's Accept header.
        """
        encoder, content_type = choose_encoder(accept)
        return Exposition(encoder(_Published(self._registry)), content_type)

    def _histogram(self, name: HistogramName) -> Histogram:
        """With the model's label set, so that no observation has to look it up."""
        histogram = Histogram(
            name.name, name.documentation, ("model_name",), buckets=name.buckets, registry=self._registry
        )
        return histogram.labels(self._model)

    def _end_counter(self, name: str, documentation: str, label: str) -> Counter:
        return Counter(name, documentation, ("model_name", label), registry=self._registry)


class _Published(Collector):
    """A registry without the times at which metrics were made: twice the lines, and nobody reads them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _StatusCollector(Collector):
    """Reads the engine's status when a scraper asks."""

    def __init__(
        self,
        client: EngineClient,
        model: str,
        requests: RunningRequests,
        dialect: MetricsDialect | None,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._model = model
        self._requests = requests
        self._dialect = dialect
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        view = EngineView(
            self._model,
            self._client.status,
            self._client.health,
            self._requests.tokens_per_second(self._clock()),
        )
        yield from own_families(view)
        if self._dialect is not None:
            yield from compatible_families(self._dialect, view)
