"""Errors in OpenAI's shape, whatever went wrong: one class, and handlers for all that FastAPI raises."""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draftproof.errors import UsageError
from draftproof.server.request_ids import PROBLEM_KEY
from draftproof.serving.client import GenerationFailed, QueueFull
from draftproof.serving.messages import FailureKind

logger = logging.getLogger("draftproof.server")

TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
LONGEST_SHOWN = 60
"""Characters of a wrong value that an error repeats."""
_JSON_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
STATUS_OF_FAILURE = {
    FailureKind.REFUSED: 400,
    FailureKind.FAULT: 500,
    FailureKind.DEADLINE: 504,
    FailureKind.STOPPED: 503,
}


class ApiError(Exception):
    """A request that ends with an error for its client.

    Args:
        status: HTTP status code.
        message: one line: what is wrong and what to do.
        param: the field that is at fault, as a path like "messages[0].content".
        code: a word for programs, like "context_length_exceeded".
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, error: Exception) -> ApiError:
        """The error for a client that says what happened; a defect of ours says no more than that it is
        one."""
        match error:
            case ApiError():
                return error
            case QueueFull():
                return cls(
                    429, str(error), code="queue_full", headers={"retry-after": str(error.retry_after)}
                )
            case GenerationFailed():
                return cls(STATUS_OF_FAILURE[error.kind], str(error), code=error.kind.value)
            case UsageError():
                return cls(400, str(error))
            case HTTPException(__cause__=ApiError() as cause):
                # FastAPI's own words for whatever happens while it reads a body.
                return cause
            case HTTPException():
                return cls(error.status_code, _words_of(error), headers=error.headers)
            case RequestValidationError():
                return _of_validation(error)
        return cls(500, "the server failed on this request; its log says how", code="internal_error")

    def body(self) -> dict[str, Any]:
        """The JSON that clients parse."""
        return {
            "error": {
                "message": self.message,
                "type": TYPE_OF_STATUS.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        """The whole answer."""
        return ErrorResponse(self)


class ErrorResponse(Response):
    """An error for a client; the log is told of it too.

    Args:
        error: that is answered with.
    """

    media_type = "application/json"

    def __init__(self, error: ApiError) -> None:
        super().__init__(orjson.dumps(error.body()), error.status, headers=error.headers)
        self._message = error.message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        scope[PROBLEM_KEY] = self._message
        await super().__call__(scope, receive, send)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every exception in OpenAI's shape."""

    async def handle(request: Request, error: Exception) -> Response:
        answer = _of_route(request, error) or ApiError.of(error)
        if answer.status == 500:
            logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer.response()

    for kind in (ApiError, HTTPException, RequestValidationError, UsageError, QueueFull, GenerationFailed):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(Exception, handle)


def _of_route(request: Request, error: Exception) -> ApiError | None:
    """The router's own refusals, in words; it gives none itself."""
    if not isinstance(error, HTTPException) or error.detail != http.HTTPStatus(error.status_code).phrase:
        return None
    words = {
        404: f"there is no {request.url.path} here; /openapi.json lists what there is",
        405: f"{request.url.path} does not take {request.method}",
    }
    found = words.get(error.status_code)
    return None if found is None else ApiError(error.status_code, found, headers=error.headers)


def _words_of(error: HTTPException) -> str:
    """Its reason; a bare status gets its standard phrase."""
    return str(error.detail) if error.detail else http.HTTPStatus(error.status_code).phrase


def _of_validation(error: RequestValidationError) -> ApiError:
    """What is wrong with the first wrong field of a body, with its path.

    A field that may be of several kinds has problems as each of them: those furthest inside it count.
    """
    if not isinstance(error.body, dict):
        kind = _JSON_KINDS.get(type(error.body), "empty")
        return ApiError(400, f"the body is {kind}; send a JSON object", code="invalid_json")
    problems = [(_path_of(problem, error.body), problem) for problem in error.errors()]
    field = problems[0][0][:1]
    furthest, _ = max((item for item in problems if item[0][:1] == field), key=_progress)
    there = [problem for path, problem in problems if path == furthest]
    words = " or ".join(dict.fromkeys(str(problem["msg"]) for problem in there)) + _given(there[0])
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in furthest).lstrip(".")
    return ApiError(400, f"{shown}: {words}" if shown else words, param=shown or None)


def _given(problem: Mapping[str, Any]) -> str:
    """The wrong value, when it is there and short enough to be of help."""
    value = problem["input"]
    if problem["type"] == "missing" or not isinstance(value, (str, int, float)):
        return ""
    shown = orjson.dumps(value).decode() if not isinstance(value, int) else str(value).lower()
    return f", not {shown}" if len(shown) <= LONGEST_SHOWN else ""


def _progress(item: tuple[Sequence[str | int], Mapping[str, Any]]) -> tuple[int, int, bool]:
    """How far inside the body, and how far along the last list; a wrong value says more than a lack."""
    path, problem = item
    last = path[-1] if path else 0
    return len(path), last if isinstance(last, int) else 0, problem["type"] != "missing"


def _path_of(problem: Mapping[str, Any], body: object) -> tuple[str | int, ...]:
    """("body", "messages", 0, "content", "str") as ("messages", 0, "content"): without names of kinds.

    Args:
        problem: as pydantic gives it, with its location.
        body: in which it is.
    """
    location = problem["loc"]
    missing = location[-1] if problem["type"] == "missing" else None
    path: list[str | int] = []
    value = body
    for part in location:
        if isinstance(part, int) and isinstance(value, list) and part < len(value):
            path.append(part)
            value = value[part]
        elif isinstance(part, str) and isinstance(value, dict) and (part in value or part == missing):
            path.append(part)
            value = value.get(part)
    return tuple(path)
