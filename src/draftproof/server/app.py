"""The HTTP server as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from draftproof import __version__
from draftproof.server.authentication import Authentication
from draftproof.server.body_limit import BodyLimit
from draftproof.server.chat import chat_router
from draftproof.server.completions import completions_router
from draftproof.server.context import RulesCheck, ServerContext
from draftproof.server.errors import install_error_handlers
from draftproof.server.field_policy import FieldPolicy
from draftproof.server.head_requests import HeadRequests
from draftproof.server.host_check import LocalHosts
from draftproof.server.maintenance import maintenance_router
from draftproof.server.models import models_router
from draftproof.server.request_ids import HEADER, RequestIds
from draftproof.server.responses import responses_router
from draftproof.server.settings import ServerSettings
from draftproof.server.tokens import tokens_router
from draftproof.serving.client import EngineClient
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer


def create_app(
    client: EngineClient,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    settings: ServerSettings,
    *,
    rules_check: RulesCheck | None = None,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """Make the application.

    Args:
        client: a started engine, measured where there are metrics.
        tokenizer: of the checkpoint.
        template: of the checkpoint; None refuses chat requests.
        settings: of the server.
        rules_check: looks at grammars and schemas before a request runs; None refuses them.
        routers: further routes: metrics, server_info, the page.
    """
    context = ServerContext(client, tokenizer, template, settings, rules_check)
    policy = FieldPolicy()
    app = FastAPI(
        title="draftproof", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    install_error_handlers(app)
    own = (
        models_router(context),
        chat_router(context, policy),
        completions_router(context, policy),
        responses_router(context, policy),
        tokens_router(context, policy),
        maintenance_router(context),
    )
    for router in (*own, *routers):
        app.include_router(router)
    _add_middleware(app, settings)
    return app


def _add_middleware(app: FastAPI, settings: ServerSettings) -> None:
    """What a request passes before its route; the one that is added last comes first."""
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit, most_bytes=settings.max_body_bytes, seconds=settings.body_seconds)
    if settings.api_keys:
        app.add_middleware(Authentication, keys=settings.api_keys)
    elif settings.is_local:
        app.add_middleware(LocalHosts)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "HEAD"],
            allow_headers=["authorization", "content-type", HEADER],
            expose_headers=[HEADER],
        )
    app.add_middleware(RequestIds)
