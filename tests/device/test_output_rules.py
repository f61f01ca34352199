"""Grammars and reasoning in device steps, and on the embedded checkpoint: the text of plain decoding."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules, Thinking
from tests.device.conftest import Pair
from tests.device.embedded import embedded_requests, embedded_tokenizer, load_embedded
from tests.engine.test_output_rules import request, requests
from tests.support.device_engines import ScriptedDrafts, make_device_engine
from tests.support.engines import Settings, make_engine, nextn, run_alone, texts
from tests.support.output_rules import END_THINK, VOCABULARY, GrammarCompiler


@pytest.fixture(scope="module")
def alone(small: Pair) -> dict[str, Completion]:
    """Each request in a step loop of its own, without speculation."""
    return {completion.request_id: completion for completion in run_alone(small.plain, requests())}


@pytest.mark.parametrize(("draft_tokens", "slots"), [(0, 4), (2, 15), (3, 3)])
def test_device_steps_give_the_text_of_plain_decoding(
    small: Pair, alone: dict[str, Completion], draft_tokens: int, slots: int
) -> None:
    engine = make_device_engine(
        small.packed, Settings(draft_tokens=draft_tokens, slots=slots, prompt_chunk=8)
    )
    completions = engine.run(requests())
    assert texts(completions) == {name: completion.token_ids for name, completion in alone.items()}
    for completion in completions:
        assert completion.finish_reason is alone[completion.request_id].finish_reason
    engine.check_integrity()


@pytest.mark.parametrize("accepted", [(None,), (0,), (2, 0, 3, 1)], ids=["right", "wrong", "now and then"])
def test_any_acceptance_gives_the_same_text(
    small: Pair, alone: dict[str, Completion], accepted: tuple[int | None, ...]
) -> None:
    references = {name: completion.token_ids for name, completion in alone.items()}
    drafts = ScriptedDrafts(references, VOCABULARY, accepted)
    engine = make_device_engine(small.packed, Settings(draft_tokens=3, slots=5), drafts=drafts)
    assert texts(engine.run(requests())) == references
    engine.check_integrity()


@pytest.mark.parametrize("budget", [70, 100])
def test_a_far_budget_is_kept_though_steps_are_launched_ahead(small: Pair, budget: int) -> None:
    """Long before it matters the steps need no host, and run ahead; none may run past the forced end."""

    def thinking() -> Request:
        rules = OutputRules(None, Thinking(begins_open=True, budget=budget))
        return request("far", rules, temperature=1.0, ignore_eos=True, max_tokens=130)

    (want,) = run_alone(small.plain, [thinking()], Settings(max_length=200))
    assert want.token_ids.index(END_THINK) == budget
    right = ScriptedDrafts({"far": want.token_ids}, VOCABULARY, (None,))
    for drafts in (None, right):
        engine = make_device_engine(small.packed, Settings(draft_tokens=3, max_length=200), drafts=drafts)
        (got,) = engine.run([thinking()])
        assert got.token_ids == want.token_ids


# The embedded checkpoint


@pytest.fixture(scope="module")
def embedded() -> LoadedModel:
    return load_embedded(torch.float32)


@pytest.fixture(scope="module")
def embedded_compiler(embedded: LoadedModel) -> Any:
    spec = embedded.target.spec
    return GrammarCompiler(embedded_tokenizer(), spec.end_token_ids, spec.vocab_size)


PERSON = Grammar(
    GrammarKind.JSON_SCHEMA,
    json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 6},
                "age": {"type": "integer", "minimum": 0, "maximum": 120},
                "likes": {"type": "array", "items": {"enum": ["tea", "rain", "moss"]}, "maxItems": 1},
            },
            "required": ["name", "age", "likes"],
            "additionalProperties": False,
        }
    ),
)


def person_requests(compiler: Any) -> list[Request]:
    """Greedy and drawn; with and without reasoning first."""
    thinking = Thinking(begins_open=True, budget=6)
    found = []
    for number, base in enumerate(embedded_requests(2, 50)):
        rules = OutputRules(PERSON, thinking if number == 0 else None)
        parameters = SamplingParameters(temperature=0.9 * (number % 2), seed=number, max_tokens=90)
        constraint = compiler.constraint(rules)
        found.append(Request(f"p{number}", base.prompt_ids, parameters, constraint=constraint))
    return found


def test_the_embedded_checkpoint_obeys_a_schema_in_every_way_of_running(
    embedded: LoadedModel, embedded_compiler: Any
) -> None:
    settings = Settings(max_length=200, slots=2)
    want = run_alone(embedded, person_requests(embedded_compiler), settings)
    tokenizer = embedded_tokenizer()
    for completion in want:
        answer = json.loads(tokenizer.decode(completion.token_ids).rpartition("</think>")[2])
        assert list(answer) == ["name", "age", "likes"]
        assert 0 <= answer["age"] <= 120
    expected = texts(want)
    speculative = Settings(draft_tokens=3, max_length=200, slots=2)
    loop = make_engine(embedded, nextn, speculative)
    assert texts(loop.run(person_requests(embedded_compiler))) == expected
    assert sum(loop.acceptance.accepted) > 10
    device = make_device_engine(load_embedded(torch.float32, packed=True), speculative)
    (got,) = device.run(person_requests(embedded_compiler)[1:])
    assert got.token_ids == expected[got.request_id]
