"""A body's fields as `SamplingParameters`."""

from __future__ import annotations

from dataclasses import replace

from draftproof.errors import UsageError
from draftproof.runtime.sampling import SamplingParameters, fresh_seed
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.schemas.fields import GenerationFields
from draftproof.server.settings import SamplingDefaults
from draftproof.serving.messages import EngineReady

SEEDS = 2**64


def sampling_of(
    context: ServerContext, fields: GenerationFields, max_tokens: int | None, logprobs: int | None
) -> SamplingParameters:
    """What the fields ask for; left-out ones get the server's defaults.

    Args:
        context: of the server.
        fields: of the body.
        max_tokens: most output tokens, None for as many as the context holds.
        logprobs: most likely tokens to report beside each output token; None for no report.

    Raises:
        ApiError: 400 naming the field.
    """
    _check_tokens(context.client.ready, fields)
    defaults = context.settings.sampling
    try:
        return _sampling(defaults, fields, max_tokens, logprobs)
    except UsageError as error:
        raise ApiError(400, str(error), param=str(error).partition(" ")[0]) from error


def with_choice(parameters: SamplingParameters, choice: int) -> SamplingParameters:
    """Parameters of a further choice of the same prompt: its noise is another one."""
    if choice == 0:
        return parameters
    return replace(parameters, seed=(parameters.seed + choice) % SEEDS)


def draft_limit_of(fields: GenerationFields) -> int | None:
    """Most drafts per pass that the body wants; None leaves it to the engine.

    Raises:
        ApiError: 400, the fields contradict each other.
    """
    if fields.speculative is False:
        if fields.draft_tokens:
            raise ApiError(
                400, "speculative is false and draft_tokens is not 0; send one of them", param="draft_tokens"
            )
        return 0
    return fields.draft_tokens


def _sampling(
    defaults: SamplingDefaults, fields: GenerationFields, max_tokens: int | None, logprobs: int | None
) -> SamplingParameters:
    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    return SamplingParameters(
        temperature=given(fields.temperature, defaults.temperature),
        top_k=defaults.top_k if fields.top_k is None else fields.top_k,
        top_p=given(fields.top_p, defaults.top_p),
        min_p=given(fields.min_p, defaults.min_p),
        repetition_penalty=given(fields.repetition_penalty, defaults.repetition_penalty),
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        min_tokens=fields.min_tokens or 0,
        max_tokens=max_tokens,
        logit_bias=_biases(fields),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        stop_strings=fields.stop_texts,
        ignore_eos=bool(fields.ignore_eos),
        logprobs=logprobs,
        seed=fresh_seed() if fields.seed is None else fields.seed,
    )


def _biases(fields: GenerationFields) -> tuple[tuple[int, float], ...]:
    biases = []
    for key, bias in (fields.logit_bias or {}).items():
        if not key.isascii() or not key.isdigit() or len(key) > 10:
            raise ApiError(400, f"logit_bias: {key[:40]!r} is no token id", param="logit_bias")
        biases.append((int(key), bias))
    return tuple(biases)


def _check_tokens(ready: EngineReady, fields: GenerationFields) -> None:
    """Tokens that are named must exist."""
    named = {"stop_token_ids": fields.stop_token_ids or [], "logit_bias": [key for key, _ in _biases(fields)]}
    for name, token_ids in named.items():
        outside = [token_id for token_id in token_ids if token_id >= ready.vocabulary_size]
        if outside:
            raise ApiError(
                400,
                f"{name} names token {outside[0]}; the vocabulary ends at {ready.vocabulary_size - 1}",
                param=name,
            )
