"""What operators see of a server: metrics, `/server_info` and the page, made around the engine's client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from draftproof.server.information import ServerMoment, server_information
from draftproof.server.json_response import JsonResponse
from draftproof.server.measured_client import MeasuredClient
from draftproof.server.metric_names import MetricsDialect
from draftproof.server.metrics import ServerMetrics
from draftproof.server.page_routes import page_router
from draftproof.server.running_requests import RunningRequests
from draftproof.server.served_chain import ServedChain
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import EngineClient


@dataclass(frozen=True)
class Observability:
    """What `create_app` is given.

    Attributes:
        client: in place of the engine's own; every request through it is measured.
        routers: `/metrics`, `/server_info` and its other names, the page.
    """

    client: MeasuredClient
    routers: tuple[APIRouter, ...]


def observe(
    client: EngineClient,
    settings: ServerSettings,
    chain: ServedChain | None = None,
    dialect: MetricsDialect | None = None,
    clock: Callable[[], float] = monotonic,
) -> Observability:
    """Put a measuring client around `client`, and make the routes that show what it measures.

    Args:
        client: a started engine.
        settings: of the server.
        chain: evidence about the checkpoint, gathered before the start.
        dialect: whose metric names are published beside draftproof's own.
        clock: seconds that only go up.
    """
    requests = RunningRequests()
    metrics = ServerMetrics(client, settings.model_name, requests, dialect, clock)
    measured = MeasuredClient(client, metrics, requests, clock)
    began = clock()

    def information() -> dict[str, Any]:
        now = clock()
        moment = ServerMoment(
            settings.model_names,
            client.ready,
            client.status,
            client.health,
            chain,
            requests.all,
            requests.tokens_per_second(now),
            now,
            now - began,
        )
        return server_information(moment)

    return Observability(
        measured, (_metrics_router(metrics), _information_router(information), page_router())
    )


def _metrics_router(metrics: ServerMetrics) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def expose(request: Request) -> Response:
        """Metrics for Prometheus."""
        shown = metrics.exposition(request.headers.get("accept", ""))
        return Response(shown.body, headers={"content-type": shown.content_type})

    return router


def _information_router(information: Callable[[], dict[str, Any]]) -> APIRouter:
    router = APIRouter(default_response_class=JsonResponse)

    @router.get("/server_info")
    async def server_info() -> JsonResponse:
        """What is served, how it does, and the evidence about it."""
        return JsonResponse(information())

    @router.get("/get_server_info", include_in_schema=False)
    async def get_server_info() -> JsonResponse:
        """The same under the name that older tools call."""
        return JsonResponse(information())

    return router
