"""The API over the real engine: the embedded checkpoint, in its own process, asked by OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletionMessageParam

from tests.support.running_server import RunningServer, running_server

PROMPT = "def main():"
USER: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me of a fox."}]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--max-num-seqs", "4", "--draft-policy", "fixed") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def complete(client: OpenAI, prompt: object = PROMPT, **fields: Any) -> Completion:
    """Forty tokens, unless the fields say otherwise."""
    ours = ("speculative", "draft_tokens", "ignore_eos")
    further = {name: fields.pop(name) for name in ours if name in fields}
    answer = client.completions.create(
        **{"model": "tiny", "prompt": prompt, "max_tokens": 40, **fields},  # type: ignore[call-overload]
        extra_body=further,
    )
    assert isinstance(answer, Completion)
    return answer


def drafted(answer: Completion) -> dict[str, Any]:
    """What became of the answer's drafts."""
    metrics: Any = answer.to_dict()["metrics"]
    found: dict[str, Any] = metrics["speculative_decoding"]
    return found


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 11, "top_p": 0.95}])
def test_the_text_is_the_text_without_speculation(client: OpenAI, sampling: dict[str, Any]) -> None:
    plain = complete(client, speculative=False, **sampling)
    assert drafted(plain)["num_draft_tokens"] == 0
    for limit in (1, 2, None):
        fields = {} if limit is None else {"draft_tokens": limit}
        answer = complete(client, **sampling, **fields)
        assert answer.choices[0].text == plain.choices[0].text
        assert answer.choices[0].finish_reason == plain.choices[0].finish_reason


def test_a_stream_is_the_whole_answer_in_parts(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=USER, max_tokens=40, seed=5)
    stream = client.chat.completions.create(
        model="tiny",
        messages=USER,
        max_tokens=40,
        seed=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(parts) == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_acceptance_obeys_its_identities(client: OpenAI) -> None:
    answer = complete(client, temperature=0, ignore_eos=True)
    found = drafted(answer)
    histogram = found["acceptance_histogram"]
    accepted = sum(count * passes for count, passes in enumerate(histogram))
    assert len(histogram) == found["num_spec_tokens"] + 1
    assert sum(histogram) == found["num_spec_steps"]
    assert accepted == found["num_accepted_draft_tokens"] > 0
    assert found["draft_acceptance_rate"] == pytest.approx(accepted / found["num_draft_tokens"])
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens == accepted
    assert details.rejected_prediction_tokens == found["num_draft_tokens"] - accepted


def test_log_probabilities_are_those_without_speculation(client: OpenAI) -> None:
    plain = complete(client, temperature=0, logprobs=3, speculative=False).choices[0].logprobs
    fast = complete(client, temperature=0, logprobs=3).choices[0].logprobs
    assert plain is not None
    assert fast is not None
    assert fast.tokens == plain.tokens
    assert fast.token_logprobs == pytest.approx(plain.token_logprobs, abs=1e-3)
    assert len(fast.tokens or []) == len(fast.top_logprobs or [])


def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    text = complete(client, temperature=0, ignore_eos=True).choices[0].text
    stop = text[20:24]
    stopped = complete(client, temperature=0, ignore_eos=True, stop=stop)
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].text == text[: text.index(stop)]
    stream = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=40, temperature=0, stop=stop, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == text[: text.index(stop)]


def test_choices_are_the_texts_of_their_seeds(client: OpenAI) -> None:
    texts = [choice.text for choice in complete(client, n=3, seed=7, temperature=0.9).choices]
    alone = [complete(client, seed=7 + index, temperature=0.9).choices[0].text for index in range(3)]
    assert texts == alone
    assert len(set(texts)) == 3


def test_a_schema_is_obeyed(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["fox", "hen"]}, "age": {"type": "integer", "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    for seed in range(3):
        answer = client.chat.completions.create(
            model="tiny",
            messages=USER,
            max_tokens=120,
            temperature=1.0,
            seed=seed,
            response_format={"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}},
        )
        assert answer.choices[0].finish_reason == "stop"
        found = json.loads(answer.choices[0].message.content or "")
        assert found["name"] in ("fox", "hen")
        assert found["age"] <= 99


def test_a_thinking_budget_is_kept_to_the_token(client: OpenAI) -> None:
    for speculative in (True, False):
        answer = client.chat.completions.create(
            model="tiny",
            messages=USER,
            max_tokens=40,
            temperature=0,
            extra_body={"enable_thinking": True, "thinking_budget": 6, "speculative": speculative},
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens_details is not None
        assert answer.usage.completion_tokens_details.reasoning_tokens == 6
        assert answer.to_dict()["choices"][0]["message"]["reasoning"]  # type: ignore[index,call-overload]


def test_a_prompt_that_was_seen_is_not_computed_again(client: OpenAI) -> None:
    prompt = list(range(200, 400))
    cold = complete(client, prompt, temperature=0, max_tokens=12)
    warm = complete(client, prompt, temperature=0, max_tokens=12)
    assert cold.usage is not None
    assert warm.usage is not None
    assert cold.usage.prompt_tokens_details is not None
    assert warm.usage.prompt_tokens_details is not None
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert (warm.usage.prompt_tokens_details.cached_tokens or 0) > 0
    assert warm.choices[0].text == cold.choices[0].text
