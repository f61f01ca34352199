"""The page at `/`: files of this package under a policy that allows nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

FOLDER = "/page"

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def page_router() -> APIRouter:
    """`/` and the files that it loads; none of them holds anything of the model or its users."""
    router = APIRouter(include_in_schema=False)
    pages = {
        entry.name: entry.read_bytes()
        for entry in files("draftproof.server").joinpath("page").iterdir()
        if entry.name.rpartition(".")[2] in _TYPES
    }

    def answer(name: str) -> Response:
        return Response(pages[name], media_type=_TYPES[name.rpartition(".")[2]], headers=HEADERS)

    def add(path: str, name: str) -> None:
        async def page() -> Response:
            return answer(name)

        router.add_api_route(path, page, methods=["GET", "HEAD"])

    add("/", "index.html")
    for name in pages:
        add(f"{FOLDER}/{name}", name)
    return router
