"""A conversation as a prompt, and what is known of the reasoning that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.prompts import encode_text, off_the_loop
from draftproof.server.schemas.chat import ChatBody
from draftproof.text.output_rules import Thinking
from draftproof.text.reasoning import thinking_after

Json = dict[str, Any]
CHARACTERS_PER_ITEM = 200
"""What a message or tool adds to the time of rendering beside its own text, as so much text."""


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation.

    Attributes:
        token_ids: of the prompt.
        thinking: of the output; None when it cannot have any.
    """

    token_ids: tuple[int, ...]
    thinking: Thinking | None


async def chat_prompt(
    context: ServerContext, body: ChatBody, messages: Sequence[Json], tools: Sequence[Json] | None
) -> ChatPrompt:
    """Render and encode a conversation.

    Raises:
        ApiError: 400, this server has no chat template, or the body contradicts itself.
        UsageError: the template refuses the messages.
    """
    goes_on = bool(body.continue_final_message)
    if goes_on and body.add_generation_prompt:
        raise ApiError(
            400,
            "continue_final_message and add_generation_prompt exclude each other",
            param="continue_final_message",
        )
    begins_answer = not goes_on and body.add_generation_prompt is not False
    text = await render_chat(context, messages, tools, begins_answer, _variables(body))
    if goes_on:
        text = _up_to_final(text, messages)
    return ChatPrompt(
        token_ids=await encode_text(context, text, with_special=False),
        thinking=thinking_after(text, _budget(body)),
    )


async def render_chat(
    context: ServerContext,
    messages: Sequence[Json],
    tools: Sequence[Json] | None,
    begins_answer: bool,
    variables: Json,
) -> str:
    """The prompt's text, see `ChatTemplate.render`.

    Raises:
        ApiError: 400, there is no chat template.
        UsageError: the template refuses the messages.
    """
    template = context.template
    if template is None:
        raise ApiError(
            400,
            "this checkpoint has no chat template. Use /v1/completions, or start the server with "
            "--chat-template.",
            code="no_chat_template",
        )
    size = sum(len(str(message)) + CHARACTERS_PER_ITEM for message in (*messages, *(tools or ())))
    return await off_the_loop(size, lambda: template.render(messages, tools, begins_answer, variables))


def _variables(body: ChatBody) -> Json:
    """Names that the template reads; those of `chat_template_kwargs` count most."""
    names: Json = {}
    if body.documents is not None:
        names["documents"] = body.documents
    if body.reasoning_effort is not None:
        names["reasoning_effort"] = body.reasoning_effort
        names["enable_thinking"] = body.reasoning_effort != "none"
    if body.enable_thinking is not None:
        names["enable_thinking"] = body.enable_thinking
    return names | (body.chat_template_kwargs or {})


def _budget(body: ChatBody) -> int | None:
    return body.thinking_budget if body.thinking_token_budget is None else body.thinking_token_budget


def _up_to_final(text: str, messages: Sequence[Json]) -> str:
    """The rendered conversation up to the end of its last message's content."""
    final = messages[-1]
    if final["role"] != "assistant" or not isinstance(final["content"], str) or not final["content"].strip():
        raise ApiError(
            400,
            "continue_final_message needs a last message of the assistant with a text",
            param="continue_final_message",
        )
    content = final["content"]
    for ending in (content, content.strip()):
        begin = text.rfind(ending)
        if begin >= 0:
            return text[: begin + len(ending)]
    raise ApiError(
        400,
        "the chat template changes the last message, so that it cannot be continued",
        param="continue_final_message",
    )
