"""`/v1/completions`: a text, or several, goes on."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from draftproof.server.answer import Call, streamed_answer, whole_answer
from draftproof.server.answer_head import AnswerHead
from draftproof.server.completion_choice import CompletionChoice, CompletionPlan
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.field_policy import FieldPolicy
from draftproof.server.generation_requests import answer_id_of, check_choices, engine_requests
from draftproof.server.json_route import JsonRoute
from draftproof.server.models import require_model
from draftproof.server.output_form import check_rules, form_field, grammar_of
from draftproof.server.prompts import check_length, check_token_ids, encode_text
from draftproof.server.request_ids import fresh_id
from draftproof.server.sampling_request import sampling_of
from draftproof.server.schemas.answers import COMPLETION_RESPONSES
from draftproof.server.schemas.completion import DEFAULT_MAX_TOKENS, CompletionBody
from draftproof.text.output_rules import OutputRules

PATH = "/v1/completions"
KIND = "text_completion"


def completions_router(context: ServerContext, policy: FieldPolicy) -> APIRouter:
    """The route."""
    router = APIRouter(route_class=JsonRoute)

    @router.post(PATH, responses=COMPLETION_RESPONSES)
    async def complete(body: CompletionBody, request: Request) -> Response:
        """Continue a text; see OpenAI's reference, and the fields for what goes beyond it."""
        require_model(context, body.model)
        policy.check(PATH, body.further_fields)
        call = await _call_of(context, body, request)
        answer = streamed_answer if body.stream else whole_answer
        return await answer(context, request, call)

    return router


async def _call_of(context: ServerContext, body: CompletionBody, request: Request) -> Call:
    """Everything that can be wrong with a body is found here, before the engine hears of it."""
    prompts = _prompts_of(body)
    check_choices(context, len(prompts), body.choices)
    if len(prompts) > context.settings.max_prompts:
        raise ApiError(
            400, f"{len(prompts)} prompts; the most is {context.settings.max_prompts}", param="prompt"
        )
    if body.echo and body.logprobs is not None:
        raise ApiError(
            400,
            "echo together with logprobs needs log probabilities of the prompt, which this server does not "
            "give. Leave one of them out.",
            param="echo",
            code="unsupported_parameter",
        )
    max_tokens = body.max_tokens or DEFAULT_MAX_TOKENS
    parameters = sampling_of(context, body, max_tokens, body.logprobs)
    rules = await _rules_of(context, body)
    engine_id = fresh_id()
    plans: list[CompletionPlan] = []
    for prompt_index, prompt in enumerate(prompts):
        prompt_ids = await _prompt_ids(context, body, prompt)
        check_length(context, len(prompt_ids), max_tokens, "prompt")
        echo = _echo_of(context, prompt) if body.echo else ""
        for made in engine_requests(
            context, body, f"{engine_id}-{prompt_index}", prompt_ids, parameters, rules
        ):
            plans.append(CompletionPlan(len(plans), prompt_index, made, echo, bool(body.return_token_ids)))
    return Call(
        head=AnswerHead.of(context, "cmpl", answer_id_of(request, body)),
        kind=KIND,
        chunk_kind=KIND,
        requests=tuple(plan.request for plan in plans),
        choices=tuple(CompletionChoice(plan, context.tokenizer) for plan in plans),
        includes_usage=body.includes_usage,
        repeats_usage=body.repeats_usage,
        draft_tokens=context.client.ready.draft_tokens,
    )


def _prompts_of(body: CompletionBody) -> list[str | list[int]]:
    """The prompts one by one."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [[part for part in prompt if isinstance(part, int)]]
    return [part for part in prompt if not isinstance(part, int)]


async def _prompt_ids(
    context: ServerContext, body: CompletionBody, prompt: str | list[int]
) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return await encode_text(context, prompt, with_special=body.add_special_tokens is not False)
    return check_token_ids(context, prompt, "prompt")


def _echo_of(context: ServerContext, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else context.tokenizer.decode(prompt, skip_special_tokens=False)


async def _rules_of(context: ServerContext, body: CompletionBody) -> OutputRules | None:
    grammar = grammar_of(body)
    if grammar is None:
        return None
    rules = OutputRules(grammar)
    await check_rules(context, rules, form_field(body) or "response_format")
    return rules
