"""Routes that say what is served and whether it works: health, version, models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from draftproof import __version__
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.json_response import JsonResponse
from draftproof.server.schemas.answers import (
    ERRORS,
    HEALTH_RESPONSES,
    MODEL_LIST_RESPONSES,
    MODEL_RESPONSES,
)
from draftproof.serving.client import HealthState

WORKING = (HealthState.READY, HealthState.DEGRADED)


def models_router(context: ServerContext) -> APIRouter:
    """`/health`, `/ping`, `/version`, `/v1/models`."""
    router = APIRouter(default_response_class=JsonResponse)

    @router.get("/health", responses=HEALTH_RESPONSES)
    @router.get("/ping", responses=HEALTH_RESPONSES)
    async def health() -> JsonResponse:
        """200 while requests are answered, also when degraded; 503 otherwise."""
        now = context.client.health
        status = 200 if now.state in WORKING else 503
        return JsonResponse({"status": now.state.value, "reasons": list(now.reasons)}, status)

    @router.get("/version", responses=ERRORS)
    async def version() -> JsonResponse:
        """Version of draftproof."""
        return JsonResponse({"version": __version__})

    @router.get("/v1/models", responses=MODEL_LIST_RESPONSES)
    async def list_models() -> JsonResponse:
        """The served model, once for each of its names."""
        data = [_model_card(context, name) for name in context.settings.model_names]
        return JsonResponse({"object": "list", "data": data})

    @router.get("/v1/models/{name:path}", responses=MODEL_RESPONSES)
    async def get_model(name: str) -> JsonResponse:
        """The served model."""
        require_model(context, name)
        return JsonResponse(_model_card(context, name))

    return router


def require_model(context: ServerContext, name: str | None) -> None:
    """Refuse a model that is not served; a request may leave it out."""
    names = context.settings.model_names
    if name is not None and name not in names:
        raise ApiError(
            404,
            f"the model {name!r} does not exist; this server has {', '.join(names)}",
            param="model",
            code="model_not_found",
        )


def _model_card(context: ServerContext, name: str) -> dict[str, Any]:
    settings = context.settings
    return {
        "id": name,
        "object": "model",
        "created": settings.created,
        "owned_by": "draftproof",
        "root": settings.model_root,
        "parent": None,
        "max_model_len": context.client.ready.max_length,
    }
