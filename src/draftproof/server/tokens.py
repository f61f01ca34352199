"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from draftproof.server.chat_prompt import render_chat
from draftproof.server.context import ServerContext
from draftproof.server.conversation import template_messages, template_tools
from draftproof.server.errors import ApiError
from draftproof.server.field_policy import FieldPolicy
from draftproof.server.json_response import JsonResponse
from draftproof.server.json_route import JsonRoute
from draftproof.server.models import require_model
from draftproof.server.prompts import check_token_ids, encode_text, off_the_loop
from draftproof.server.schemas.answers import DETOKENIZE_RESPONSES, TOKENIZE_RESPONSES
from draftproof.server.schemas.tokens import DetokenizeBody, TokenizeBody

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


def tokens_router(context: ServerContext, policy: FieldPolicy) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=JsonRoute)

    @router.post(TOKENIZE, responses=TOKENIZE_RESPONSES)
    async def tokenize(body: TokenizeBody) -> Response:
        """Token ids of a text, or of a conversation as the chat template renders it."""
        require_model(context, body.model)
        policy.check(TOKENIZE, body.further_fields)
        token_ids = await _token_ids(context, body)
        answer: dict[str, object] = {
            "count": len(token_ids),
            "max_model_len": context.client.ready.max_length,
            "tokens": token_ids,
        }
        if body.return_token_strs:
            answer["token_strs"] = [
                context.tokenizer.piece(token_id).decode("utf-8", "replace") for token_id in token_ids
            ]
        return JsonResponse(answer)

    @router.post(DETOKENIZE, responses=DETOKENIZE_RESPONSES)
    async def detokenize(body: DetokenizeBody) -> Response:
        """Text of token ids, special tokens included."""
        require_model(context, body.model)
        policy.check(DETOKENIZE, body.further_fields)
        token_ids = check_token_ids(context, body.tokens, "tokens")
        text = await off_the_loop(
            len(token_ids), lambda: context.tokenizer.decode(token_ids, skip_special_tokens=False)
        )
        return JsonResponse({"prompt": text})

    return router


async def _token_ids(context: ServerContext, body: TokenizeBody) -> tuple[int, ...]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "send either prompt or messages", param="prompt")
    if body.prompt is not None:
        return await encode_text(context, body.prompt, with_special=body.add_special_tokens is not False)
    text = await render_chat(
        context,
        template_messages(body.messages or ()),
        template_tools(body.tools),
        body.add_generation_prompt is not False,
        body.chat_template_kwargs or {},
    )
    return await encode_text(context, text, with_special=body.add_special_tokens is True)
