"""Requests to the engine out of a checked body."""

from __future__ import annotations

from fastapi import Request

from draftproof.runtime.sampling import SamplingParameters
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.request_ids import is_usable, request_id_of
from draftproof.server.sampling_request import draft_limit_of, with_choice
from draftproof.server.schemas.fields import GenerationFields
from draftproof.serving.messages import GenerationRequest
from draftproof.text.output_rules import OutputRules


def answer_id_of(request: Request, fields: GenerationFields) -> str:
    """The id that the answer is known by: the body's, or the request's.

    Raises:
        ApiError: 400, the body's cannot be used.
    """
    if fields.request_id is None:
        return request_id_of(request.scope)
    if not is_usable(fields.request_id):
        raise ApiError(
            400, "request_id must be 1 to 128 printable ASCII characters without spaces", param="request_id"
        )
    return fields.request_id


def check_choices(context: ServerContext, prompts: int, choices: int) -> None:
    """Refuse more outputs than one request may have."""
    most = context.settings.max_choices
    if prompts * choices > most:
        raise ApiError(
            400,
            f"{prompts} prompts with n = {choices} are {prompts * choices} outputs; the most is {most}",
            param="n",
        )


def engine_requests(
    context: ServerContext,
    fields: GenerationFields,
    engine_id: str,
    prompt_ids: tuple[int, ...],
    parameters: SamplingParameters,
    rules: OutputRules | None,
) -> tuple[GenerationRequest, ...]:
    """One request for each choice of a prompt.

    Args:
        context: of the server.
        fields: of the body.
        engine_id: unique; each choice adds its number.
        prompt_ids: of the prompt.
        parameters: of the first choice.
        rules: of the output.
    """
    draft_tokens = draft_limit_of(fields)
    return tuple(
        GenerationRequest(
            request_id=f"{engine_id}-{choice}",
            prompt_ids=prompt_ids,
            parameters=with_choice(parameters, choice),
            rules=rules,
            draft_tokens=draft_tokens,
            deadline_seconds=context.settings.request_seconds,
            shows_special_tokens=fields.skip_special_tokens is False,
        )
        for choice in range(fields.choices)
    )
