"""`/v1/chat/completions`: a conversation gets its answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from draftproof.errors import UsageError
from draftproof.server.answer import Call, streamed_answer, whole_answer
from draftproof.server.answer_head import AnswerHead
from draftproof.server.chat_choice import ChatChoice, ChatPlan
from draftproof.server.chat_prompt import chat_prompt
from draftproof.server.context import ServerContext
from draftproof.server.conversation import OfferedTools, offered_tools, template_messages
from draftproof.server.errors import ApiError
from draftproof.server.field_policy import FieldPolicy
from draftproof.server.generation_requests import answer_id_of, check_choices, engine_requests
from draftproof.server.json_route import JsonRoute
from draftproof.server.models import require_model
from draftproof.server.output_form import check_rules, form_field, grammar_of
from draftproof.server.prompts import check_length
from draftproof.server.request_ids import fresh_id
from draftproof.server.sampling_request import sampling_of
from draftproof.server.schemas.answers import CHAT_RESPONSES
from draftproof.server.schemas.chat import ChatBody
from draftproof.text.output_rules import Grammar, OutputRules, Thinking
from draftproof.text.tool_grammar import tool_call_grammar

PATH = "/v1/chat/completions"


def chat_router(context: ServerContext, policy: FieldPolicy) -> APIRouter:
    """The route."""
    router = APIRouter(route_class=JsonRoute)

    @router.post(PATH, responses=CHAT_RESPONSES)
    async def chat(body: ChatBody, request: Request) -> Response:
        """Answer a conversation; see OpenAI's reference, and the fields for what goes beyond it."""
        require_model(context, body.model)
        policy.check(PATH, body.further_fields)
        call = await chat_call(context, body, request)
        answer = streamed_answer if body.stream else whole_answer
        return await answer(context, request, call)

    return router


async def chat_call(
    context: ServerContext, body: ChatBody, request: Request, prefix: str = "chatcmpl"
) -> Call:
    """Everything that can be wrong with a body is found here, before the engine hears of it.

    Args:
        context: of the server.
        body: what is asked for.
        request: that it came with.
        prefix: of the answer's id.

    Raises:
        ApiError, UsageError: what is wrong.
    """
    check_choices(context, 1, body.choices)
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    parameters = sampling_of(context, body, max_tokens, _logprobs(body))
    tools = offered_tools(body)
    grammar = _grammar(body, tools)
    prompt = await chat_prompt(context, body, template_messages(body.messages), tools.shown)
    check_length(context, len(prompt.token_ids), max_tokens, "messages")
    rules = await _rules(context, body, grammar, prompt.thinking)
    requests = engine_requests(context, body, fresh_id(), prompt.token_ids, parameters, rules)
    plans = [
        ChatPlan(
            index=index,
            request=made,
            functions=tools.functions if tools.are_callable else (),
            thinking=prompt.thinking,
            shows_reasoning=body.include_reasoning is not False,
            shows_token_ids=bool(body.return_token_ids),
        )
        for index, made in enumerate(requests)
    ]
    return Call(
        head=AnswerHead.of(context, prefix, answer_id_of(request, body)),
        kind="chat.completion",
        chunk_kind="chat.completion.chunk",
        requests=requests,
        choices=tuple(ChatChoice(plan, context.tokenizer) for plan in plans),
        includes_usage=body.includes_usage,
        repeats_usage=body.repeats_usage,
        draft_tokens=context.client.ready.draft_tokens,
    )


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    return None


def _grammar(body: ChatBody, tools: OfferedTools) -> Grammar | None:
    """The one grammar of the answer: of calls, of the form that was asked for, or of both.

    Raises:
        ApiError: 400, they cannot be enforced.
    """
    form = grammar_of(body)
    try:
        return tool_call_grammar(tools.functions, tools.choice, tools.parallel, form)
    except UsageError as error:
        raise ApiError(400, str(error), param="tools", code="invalid_grammar") from error


async def _rules(
    context: ServerContext, body: ChatBody, grammar: Grammar | None, thinking: Thinking | None
) -> OutputRules | None:
    """None when nothing limits the output."""
    has_budget = thinking is not None and thinking.budget is not None
    if grammar is None and not has_budget:
        return None
    rules = OutputRules(grammar, thinking)
    await check_rules(context, rules, form_field(body) or ("tools" if body.tools else "thinking_budget"))
    return rules
