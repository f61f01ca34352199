"""Routes for operators and load tools: forgetting prompts, load, a real generation as a check."""

from __future__ import annotations

from contextlib import aclosing

from fastapi import APIRouter
from starlette.responses import Response

from draftproof.runtime.sampling import SamplingParameters
from draftproof.server.choices import choice_chunks
from draftproof.server.context import ServerContext
from draftproof.server.json_response import JsonResponse
from draftproof.server.request_ids import fresh_id
from draftproof.server.schemas.answers import ERRORS
from draftproof.serving.messages import GenerationRequest


def maintenance_router(context: ServerContext) -> APIRouter:
    """`/reset_prefix_cache` and `/flush_cache`, `/load`, `/model_info`, `/health_generate`."""
    router = APIRouter()

    @router.post("/reset_prefix_cache", responses=ERRORS)
    @router.post("/flush_cache", include_in_schema=False)
    async def reset_prefix_cache() -> Response:
        """Forget kept prompts, so that the next ones are computed from the beginning."""
        await context.client.reset_prefix_cache()
        return JsonResponse({"status": "ok"})

    @router.get("/load", responses=ERRORS)
    async def load() -> Response:
        """Requests in the engine."""
        status = context.client.status
        return JsonResponse({"server_load": status.running + status.waiting})

    @router.get("/model_info", responses=ERRORS)
    @router.get("/get_model_info", include_in_schema=False)
    async def model_info() -> Response:
        """The checkpoint, in SGLang's words."""
        return JsonResponse(
            {
                "model_path": context.settings.model_root,
                "served_model_name": context.settings.model_name,
                "is_generation": True,
                "max_model_len": context.client.ready.max_length,
            }
        )

    @router.get("/health_generate", responses=ERRORS)
    async def health_generate() -> Response:
        """Generate one token: 200 when that works."""
        request = GenerationRequest(
            request_id=fresh_id(),
            prompt_ids=(min(1, context.client.ready.vocabulary_size - 1),),
            parameters=SamplingParameters(max_tokens=1),
            deadline_seconds=context.settings.request_seconds,
        )
        async with aclosing(choice_chunks(context.client, (request,))) as chunks:
            async for _ in chunks:
                pass
        return JsonResponse({"status": "ready"})

    return router
