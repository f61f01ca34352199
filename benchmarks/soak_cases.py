"""Requests of a soak: many kinds, each with a seed, so that each has one right answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from importlib.resources import files
from typing import Any


class Endpoint(Enum):
    """Which route a request goes to."""

    CHAT = "chat"
    COMPLETION = "completion"


@dataclass(frozen=True, eq=False)
class Case:
    """One request; each is itself alone.

    Attributes:
        name: unique in a catalogue.
        kind: what it exercises.
        endpoint: where it goes.
        fields: OpenAI's fields, without `model` and `stream`.
        further: fields beyond OpenAI's.
    """

    name: str
    kind: str
    endpoint: Endpoint
    fields: dict[str, Any]
    further: dict[str, Any]

    def without_speculation(self) -> Case:
        """The same request, decoded plainly."""
        kept = {name: value for name, value in self.further.items() if name != "draft_tokens"}
        return replace(self, further={**kept, "speculative": False})


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place now.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
QUESTIONS = (
    "Write a Python function `as_integer_ratio`. Return the integer ratio as a tuple.",
    "Write a Python function `clamp`. Keep a number between two bounds.",
    "Explain what a queue is.",
    "What does `heapify` do?",
    "Name three uses of a dictionary.",
)


def catalogue(count: int, seed: int = 0) -> tuple[Case, ...]:
    """`count` different requests, all kinds in turn."""
    generator = random.Random(seed)
    texts = _texts()
    makers = (
        _greedy_chat,
        _sampled_chat,
        _conversation,
        _tools_wanted,
        _tools_offered,
        _schema,
        _json_object,
        _long_prompt,
        _stop_strings,
        _penalties,
        _few_drafts,
        _thinking,
        _log_probabilities,
    )
    return tuple(makers[index % len(makers)](f"{index:03}", generator, texts) for index in range(count))


Maker = Callable[[str, random.Random, tuple[str, ...]], Case]


def _texts() -> tuple[str, ...]:
    """Beginnings of code and prose that come with the embedded checkpoint."""
    shipped = json.loads(files("draftproof").joinpath("data/tiny/prompts.json").read_text(encoding="utf-8"))
    return tuple(prompt["text"] for prompt in shipped["prompts"] if prompt["kind"] != "chat")


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _chat(name: str, kind: str, generator: random.Random, temperature: float, **fields: Any) -> Case:
    question = generator.choice(QUESTIONS)
    given = {
        "messages": [_user(question)],
        "temperature": temperature,
        "seed": generator.randrange(2**31),
        "max_completion_tokens": generator.randrange(16, 96),
        **fields,
    }
    return Case(name, kind, Endpoint.CHAT, given, {"chat_template_kwargs": {"enable_thinking": False}})


def _completion(
    name: str, kind: str, generator: random.Random, prompt: str, further: dict[str, Any], **fields: Any
) -> Case:
    given = {
        "prompt": prompt,
        "seed": generator.randrange(2**31),
        "max_tokens": generator.randrange(16, 96),
        **fields,
    }
    return Case(name, kind, Endpoint.COMPLETION, given, further)


def _greedy_chat(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(name, "greedy chat", generator, 0.0)


def _sampled_chat(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(name, "sampled chat", generator, 1.0, top_p=0.95)


def _conversation(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    """Turns that share their beginning with other requests."""
    messages = [{"role": "system", "content": "You are a careful programmer. " * 8}]
    for question in QUESTIONS[: generator.randrange(1, 4)]:
        messages += [_user(question), {"role": "assistant", "content": f"It is simple: {question.lower()}"}]
    messages.append(_user(generator.choice(QUESTIONS)))
    return _chat(name, "conversation", generator, generator.choice((0.0, 1.0)), messages=messages)


def _tools_wanted(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(
        name,
        "tool required",
        generator,
        generator.choice((0.0, 1.0)),
        messages=[_user("What is the weather in Paris?")],
        tools=[WEATHER],
        tool_choice="required",
        max_completion_tokens=96,
    )


def _tools_offered(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(name, "tool offered", generator, 1.0, tools=[WEATHER], tool_choice="auto")


def _schema(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    return _chat(
        name,
        "json schema",
        generator,
        generator.choice((0.0, 1.0)),
        response_format=form,
        max_completion_tokens=96,
    )


def _json_object(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(name, "json object", generator, 1.0, response_format={"type": "json_object"})


def _long_prompt(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    parts: Iterator[str] = (generator.choice(texts) for _ in range(4))
    return _completion(
        name, "long prompt", generator, "\n".join(parts), {}, temperature=generator.choice((0.0, 1.0))
    )


def _stop_strings(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _completion(
        name,
        "stop strings",
        generator,
        generator.choice(texts),
        {},
        temperature=1.0,
        stop=generator.sample(["\n\n", "self", "return", " the ", ").", "if "], 2),
    )


def _penalties(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _completion(
        name,
        "penalties",
        generator,
        generator.choice(texts),
        {"repetition_penalty": 1.2, "top_k": 40, "min_tokens": 12, "min_p": 0.02},
        temperature=0.8,
        frequency_penalty=0.4,
        presence_penalty=0.2,
    )


def _few_drafts(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _completion(
        name,
        "long output, one draft",
        generator,
        generator.choice(texts),
        {"draft_tokens": 1, "ignore_eos": True},
        max_tokens=generator.randrange(200, 400),
    )


def _thinking(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    case = _chat(name, "thinking", generator, generator.choice((0.0, 1.0)))
    return Case(
        name, case.kind, case.endpoint, case.fields, {"chat_template_kwargs": {"enable_thinking": True}}
    )


def _log_probabilities(name: str, generator: random.Random, texts: tuple[str, ...]) -> Case:
    return _chat(name, "log probabilities", generator, 1.0, logprobs=True, top_logprobs=3)
