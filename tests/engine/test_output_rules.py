"""Grammars and reasoning under speculation: the text is the one of plain decoding, whatever is drafted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

import pytest

from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.sequence import Sequence as SequenceTokens
from draftproof.speculation.acceptance import FinishReason
from draftproof.speculation.scripted import Script, anti, oracle, pattern
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules, Thinking
from draftproof.text.response_parser import ParsedResponse, ResponseParser
from draftproof.text.tool_calls import ToolFunction
from draftproof.text.tool_grammar import ToolChoice, ToolChoiceMode, tool_call_grammar
from tests.support.engines import (
    DrafterMaker,
    Settings,
    make_engine,
    nextn,
    random_prompt,
    run_alone,
    scripted,
    texts,
)
from tests.support.output_rules import (
    END_THINK,
    ENDS,
    OPEN,
    THINK,
    VOCABULARY,
    WHOLE_NUMBER,
    compiler,
    encode,
    tokenizer,
)

COUNT = ToolFunction(
    "count", {"properties": {"n": {"type": "integer"}, "up": {"type": "boolean"}}, "required": ["n"]}, True
)
CALL = tool_call_grammar([COUNT], ToolChoice(ToolChoiceMode.REQUIRED), parallel=False)
DOT = encode(".")[0]
FENCE = encode("```json")


def request(name: str, rules: OutputRules | None, **fields: object) -> Request:
    """With a constraint of its own, so every run needs a new one."""
    parameters = {"max_tokens": 40, "seed": len(name), **fields}
    return Request(
        name,
        random_prompt(5 + len(name), len(name)),
        SamplingParameters(**parameters),  # type: ignore[arg-type]
        constraint=None if rules is None else compiler().constraint(rules),
    )


LIKELY_END = ((DOT, 4.0), (END_THINK, 4.0))


def requests() -> list[Request]:
    """Rules of every kind, greedy and drawn, beside requests without any."""
    thinks = replace(OPEN, budget=9)
    return [
        request("number", OutputRules(WHOLE_NUMBER)),
        request("drawn number", OutputRules(WHOLE_NUMBER), temperature=1.0),
        request("free", None, temperature=0.7, ignore_eos=True),
        request("any object", OutputRules(Grammar(GrammarKind.JSON_OBJECT)), temperature=2.0, max_tokens=25),
        request("choice", OutputRules(Grammar(GrammarKind.CHOICE, '["yes", "no", "yesterday"]'))),
        request("no end", OutputRules(Grammar(GrammarKind.REGEX, "(ab?)*")), temperature=1.0, min_tokens=6),
        request("finished but min_tokens", OutputRules(WHOLE_NUMBER), min_tokens=30),
        request("goes on after its end", OutputRules(WHOLE_NUMBER), temperature=1.0, ignore_eos=True),
        request("call", OutputRules(CALL), temperature=1.0, max_tokens=100),
        request("thinks", OutputRules(WHOLE_NUMBER, OPEN), temperature=1.0, logit_bias=LIKELY_END),
        request("thinks in a budget", OutputRules(WHOLE_NUMBER, thinks), temperature=1.0),
        request("only a budget", OutputRules(None, thinks), temperature=1.0, ignore_eos=True),
        request(
            "may think",
            OutputRules(WHOLE_NUMBER, Thinking(begins_open=False, budget=5)),
            logit_bias=((THINK, 50.0),),
        ),
        request("penalties", OutputRules(WHOLE_NUMBER), temperature=1.0, frequency_penalty=1.5, logprobs=2),
        request("stop in it", OutputRules(WHOLE_NUMBER), stop_token_ids=encode(":")),
    ]


def fences(references: dict[str, Sequence[int]]) -> Script:
    """What models like to write around JSON, in turns with right drafts that go on past the end."""
    right, turns = oracle(references), cycle(range(4))

    def script(sequence: SequenceTokens, wanted: int) -> Sequence[int]:
        tokens = [*right(sequence, wanted)]
        kind = next(turns)
        if kind == 0:
            return FENCE[:wanted]
        if kind == 1:
            return [*tokens[:1], *FENCE][:wanted]
        return [*tokens, ENDS[1], *FENCE, ENDS[0]][:wanted]

    return script


@pytest.fixture(scope="module")
def alone(small_model: LoadedModel) -> dict[str, Completion]:
    """Each request in an engine of its own, without speculation."""
    return {completion.request_id: completion for completion in run_alone(small_model, requests())}


def text_of(completion: Completion) -> str:
    return tokenizer().decode(completion.token_ids)


def test_the_texts_are_what_the_rules_say(alone: dict[str, Completion]) -> None:
    for name in ("number", "drawn number", "penalties", "finished but min_tokens", "goes on after its end"):
        assert isinstance(json.loads(text_of(alone[name]))["a"], int)
    assert text_of(alone["choice"]) in ("yes", "no", "yesterday")
    assert len(alone["no end"].token_ids) > 6
    assert set(text_of(alone["no end"])) <= set("ab")
    assert len(alone["finished but min_tokens"].token_ids) == 31
    assert len(alone["goes on after its end"].token_ids) == 40
    assert text_of(alone["stop in it"]).endswith('"a":')
    for name in ("thinks", "thinks in a budget", "may think"):
        parser = ResponseParser((), OPEN if name != "may think" else Thinking(begins_open=False))
        answer = ParsedResponse.of([*parser.push(text_of(alone[name])), *parser.finish()])
        assert isinstance(json.loads(answer.content)["a"], int)
    parser = ResponseParser([COUNT])
    (call,) = ParsedResponse.of([*parser.push(text_of(alone["call"])), *parser.finish()]).calls
    assert isinstance(json.loads(call.arguments)["n"], int)


def test_a_budget_ends_reasoning_at_exactly_its_token(alone: dict[str, Completion]) -> None:
    for name, begin in (("thinks in a budget", 0), ("only a budget", 0), ("may think", 1)):
        tokens = alone[name].token_ids
        assert tokens.index(END_THINK) - begin == (5 if begin else 9)


DRAFTERS: dict[str, Callable[[dict[str, Sequence[int]]], DrafterMaker]] = {
    "nextn": lambda references: nextn,
    "oracle": lambda references: scripted(oracle(references)),
    "anti": lambda references: scripted(anti(references, VOCABULARY)),
    "pattern": lambda references: scripted(pattern(references, VOCABULARY, (2, None, 0, 3, 1))),
    "fences": lambda references: scripted(fences(references)),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize(("draft_tokens", "slots"), [(1, 4), (3, 15), (5, 2)])
def test_any_drafts_give_the_text_of_plain_decoding(
    small_model: LoadedModel, alone: dict[str, Completion], name: str, draft_tokens: int, slots: int
) -> None:
    references = {key: completion.token_ids for key, completion in alone.items()}
    settings = Settings(draft_tokens=draft_tokens, slots=slots, prompt_chunk=8)
    engine = make_engine(small_model, DRAFTERS[name](dict(references)), settings)
    completions = engine.run(requests())
    assert texts(completions) == references
    for completion in completions:
        assert completion.finish_reason is alone[completion.request_id].finish_reason
    engine.check_integrity()
    if name == "oracle":
        assert engine.acceptance.accepted == engine.acceptance.proposed


def test_right_drafts_are_kept_up_to_a_forced_end(
    small_model: LoadedModel, alone: dict[str, Completion]
) -> None:
    """9 reasoning tokens, the forced end and the answer: windows of four, all of them accepted whole."""
    reference = alone["thinks in a budget"].token_ids
    engine = make_engine(small_model, scripted(oracle({"x": reference})), Settings(draft_tokens=3))
    (each,) = (each for each in requests() if each.request_id == "thinks in a budget")
    (got,) = engine.run([replace(each, request_id="x")])
    assert got.token_ids == reference
    assert got.acceptance.passes == -(-(len(reference) - 1) // 4)


def test_the_head_drafts_only_what_the_grammar_allows(small_model: LoadedModel) -> None:
    """So that where one token is possible, its drafts are always right."""
    forced = Grammar(GrammarKind.CHOICE, json.dumps(["abcdefgh" * 4]))
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3))
    (got,) = engine.run([request("r", OutputRules(forced), temperature=5.0)])
    assert text_of(got) == "abcdefgh" * 4
    assert got.finish_reason is FinishReason.STOP
    assert got.acceptance.accept_length == 4.0


def test_a_grammar_whose_parser_gives_up_ends_its_own_request_only(
    small_model: LoadedModel, alone: dict[str, Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftproof.text.grammar.MOST_LARK_ITEMS", 60)
    ambiguous = Grammar(GrammarKind.LARK, 'start: e\ne: e e | e e e | "a" | e "+" e | "(" e ")"')
    lost = request("lost", OutputRules(ambiguous), logit_bias=((encode("a")[0], 100.0),))
    neighbours = [each for each in requests() if each.request_id in ("number", "free")]
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, slots=3))
    ended, *others = engine.run([lost, *neighbours])
    assert lost.constraint is not None
    assert "its parser hit a limit" in (lost.constraint.failure or "")
    assert ended.finish_reason is FinishReason.STOP
    assert set(ended.token_ids[:-1]) == set(encode("a"))
    for completion in others:
        assert completion.token_ids == alone[completion.request_id].token_ids


def test_a_request_that_is_put_back_and_computed_again_keeps_its_place_in_the_grammar(
    small_model: LoadedModel, alone: dict[str, Completion]
) -> None:
    settings = Settings(draft_tokens=3, slots=8, page_size=4, pages=45, prompt_chunk=8)
    engine = make_engine(small_model, nextn, settings)
    completions = engine.run(requests())
    assert engine.status().preemptions > 2
    assert texts(completions) == {name: completion.token_ids for name, completion in alone.items()}
    engine.check_integrity()
