"""The HTTP server as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

from draftproof import __version__
from draftproof.server.context import RulesCheck, ServerContext
from draftproof.server.errors import install_error_handlers
from draftproof.server.models import models_router
from draftproof.server.settings import ServerSettings
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
    app = FastAPI(title="draftproof", version=__version__, docs_url=None, redoc_url=None)
    install_error_handlers(app)
    for router in (models_router(context), *routers):
        app.include_router(router)
    return app
