"""Fields that `/v1/chat/completions` and `/v1/completions` share.

Ranges are those of `SamplingParameters`; a field that is null counts as left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from draftproof.runtime.sampling import (
    LARGEST_BIAS,
    LARGEST_PENALTY,
    LARGEST_REPETITION_PENALTY,
    LARGEST_TEMPERATURE,
    SEED_MAXIMUM,
    SEED_MINIMUM,
)
from draftproof.server.schemas.base import Integer, WireModel

MOST_STOPS = 64
MOST_CHOICES = 128
LARGEST_COUNT = 2**31 - 1

TokenId = Annotated[Integer, Field(ge=0, le=LARGEST_COUNT)]
TokenCount = Annotated[Integer, Field(ge=1, le=LARGEST_COUNT)]
Penalty = Annotated[float, Field(ge=-LARGEST_PENALTY, le=LARGEST_PENALTY)]
StopText = Annotated[str, Field(min_length=1)]
Bias = Annotated[float, Field(ge=-LARGEST_BIAS, le=LARGEST_BIAS)]


class StreamOptions(WireModel):
    """What a stream tells besides text.

    Attributes:
        include_usage: a last chunk with usage and without choices.
        continuous_usage_stats: usage so far in every chunk, which may hold several tokens.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchemaFormat(WireModel):
    """A schema for the answer.

    Attributes:
        name: for people.
        description: for people.
        schema_: JSON schema; on the wire it is named `schema`.
        strict: the schema is always enforced, whatever this says.
    """

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(WireModel):
    """Form of the answer.

    Attributes:
        type: free text, any JSON object, or JSON of a schema.
        json_schema: needed for the last.
    """

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(WireModel):
    """vLLM's way to name a form; exactly one field.

    Attributes:
        json_: JSON schema as an object or a text; on the wire it is named `json`.
        regex: regular expression that the whole answer matches.
        choice: texts, of which the answer is one.
        grammar: Lark grammar.
        json_object: any JSON object.
    """

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Annotated[list[StopText], Field(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class GenerationFields(WireModel):
    """How to sample, when to stop, what to report.

    Attributes:
        model: a served name.
        temperature: see `SamplingParameters`, as for all fields that it has.
        n: choices to make of each prompt.
        stop: texts that end the output.
        logit_bias: token id (as text, JSON has no other keys) to bias.
        stream: answer in server-sent events.
        skip_special_tokens: false shows special tokens in the text.
        return_token_ids: token ids of prompt and output beside the text.
        speculative: false decodes this request without drafts.
        draft_tokens: most drafts per pass for this request; 0 for none.
        response_format: form of the answer, OpenAI's way.
        structured_outputs: form of the answer, vLLM's way.
        request_id: for the answer's id; one is made up when left out.
    """

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=LARGEST_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Integer, Field(ge=-1, le=LARGEST_COUNT)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=1 / LARGEST_REPETITION_PENALTY, le=LARGEST_REPETITION_PENALTY)] | None
    ) = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[Integer, Field(ge=SEED_MINIMUM, le=SEED_MAXIMUM)] | None = None
    n: Annotated[Integer, Field(ge=1, le=MOST_CHOICES)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[Integer, Field(ge=0, le=LARGEST_COUNT)] | None = None
    logit_bias: dict[str, Bias] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    speculative: bool | None = None
    draft_tokens: Annotated[Integer, Field(ge=0, le=LARGEST_COUNT)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    request_id: str | None = None

    @property
    def choices(self) -> int:
        """`n`, 1 when left out."""
        return self.n or 1

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """`stop` as texts."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """A stream ends with usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        """Every chunk of a stream has usage."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)
