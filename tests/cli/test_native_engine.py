"""Our engine behind the chain's protocol: both arms of one engine, and what a difference is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.cli.native_engine import build_native_engine
from draftproof.engine.config import EngineConfig
from draftproof.links.running_engine import Arm, Prompt, Sampling

PROMPT = Prompt("p", "code", "def add(a, b):")


@pytest.fixture(scope="module")
def engine(moe_checkpoint):
    checkpoint = open_checkpoint(str(moe_checkpoint.folder))
    return build_native_engine(checkpoint, EngineConfig(max_sequences=1, max_length=128))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_both_arms_give_the_same_tokens_and_only_one_drafts(engine, temperature):
    sampling = Sampling(temperature, 3, 24)
    plain = engine.generate(PROMPT, sampling, Arm.PLAIN)
    speculative = engine.generate(PROMPT, sampling, Arm.SPECULATIVE)
    assert plain.token_ids == speculative.token_ids
    assert sum(plain.drafts.proposed) == 0 < sum(speculative.drafts.proposed)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_wrong_token_is_no_near_tie(engine, temperature):
    sampling = Sampling(temperature, 3, 12)
    plain = engine.generate(PROMPT, sampling, Arm.PLAIN)
    wrong = (*plain.token_ids[:5], (plain.token_ids[5] + 1) % 320, *plain.token_ids[6:])
    difference = engine.explain(PROMPT, sampling, plain, replace(plain, token_ids=wrong))
    assert difference.index == 5
    assert difference.gap > 100 * difference.noise
    assert not difference.is_near_tie


def test_rounding_is_never_taken_for_nothing(engine):
    sampling = Sampling(0.0, 3, 4)
    plain = engine.generate(PROMPT, sampling, Arm.PLAIN)
    wrong = ((plain.token_ids[0] + 1) % 320, *plain.token_ids[1:])
    assert engine.explain(PROMPT, sampling, plain, replace(plain, token_ids=wrong)).noise > 0


def test_an_answer_that_stops_early_is_no_near_tie(engine):
    sampling = Sampling(0.0, 3, 8)
    plain = engine.generate(PROMPT, sampling, Arm.PLAIN)
    shorter = replace(plain, token_ids=plain.token_ids[:4])
    difference = engine.explain(PROMPT, sampling, plain, shorter)
    assert difference.index == 4
    assert not difference.is_near_tie
