"""Device steps of changing K: the text is the same, costs can be measured, and a head with a hole drafts no
more."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from draftproof.engine.calibration import Calibration, DictatedChoice, measure_step_costs
from draftproof.engine.request import Request
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.draft_choice import AdaptiveChoice
from draftproof.speculation.step_costs import StepCost, StepCosts
from tests.device.conftest import Pair
from tests.support.device_engines import make_device_engine
from tests.support.draft_choices import PatternChoice
from tests.support.engines import Settings, make_engine, random_prompt, texts
from tests.support.random_lives import random_requests, run_lives


def request(name: str, draft_tokens: int | None = None) -> Request:
    parameters = SamplingParameters(seed=3, temperature=4.0, max_tokens=40, ignore_eos=True)
    return Request(name, random_prompt(9, 5), parameters, draft_tokens)


@pytest.mark.parametrize("pattern", [(3, 1, 2), (3, 0, 1, 2, 3)])
def test_random_lives_have_the_texts_of_plain_decoding(small: Pair, pattern: tuple[int, ...]) -> None:
    requests = random_requests(24, seed=6, longest=30, most_tokens=20)
    reference = make_engine(small.plain)
    alone = texts([reference.run([one])[0] for one in requests])
    settings = Settings(draft_tokens=3, slots=4, page_size=4, prompt_chunk=7, pages=22, snapshots=6)
    engine = make_device_engine(small.packed, settings, choice=PatternChoice(pattern))
    assert run_lives(engine, requests, alone, 40, random.Random(4)) > 20


def test_costs_of_device_steps_are_measured_and_used(small: Pair) -> None:
    choice = DictatedChoice()
    settings = Settings(draft_tokens=2, slots=4)
    scratch = make_device_engine(small.packed, settings, choice=choice)
    costs = measure_step_costs(scratch, choice, Calibration((1, 2, 4), (0, 1, 2)))
    assert costs is not None
    assert (costs.batches, costs.most_drafts) == ((1, 2, 4), 2)
    assert not scratch.has_work
    engine = make_device_engine(small.packed, settings, choice=AdaptiveChoice(costs, fewest_tried=1))
    requests = [request("a"), request("b", 0), request("c", 1)]
    assert texts(engine.run(requests)) == texts(make_engine(small.plain).run(requests))
    assert {arm.batch for arm in engine.status().arms} == {1, 2, 4}


def test_a_sequence_with_a_hole_has_no_drafts_and_its_neighbour_has(small: Pair) -> None:
    choice = PatternChoice([2, 0, 2, 2, 2, 2])
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, slots=2), choice=choice)
    engine.add(request("a"))
    for _ in range(8):
        engine.step()
    engine.add(request("b"))
    for _ in range(6):
        engine.step()
    assert (0, 2) in choice.limits


def test_steps_of_one_form_that_follow_each_other_are_timed(small: Pair) -> None:
    choice = PatternChoice([2] * 4 + [1] * 4)
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, slots=1), choice=choice)
    engine.run([request("a")])
    widths = [decision.draft_tokens for decision, _, _ in choice.steps]
    timed = [seconds is not None for _, seconds, _ in choice.steps]
    before = [-1, *widths[:-1]]
    assert timed == [now == earlier for now, earlier in zip(widths, before, strict=True)]


def test_a_pause_is_no_part_of_a_step(small: Pair) -> None:
    """Prompts of one token have no step of their own, which would lie between two requests."""
    choice = PatternChoice([1])
    engine = make_device_engine(small.packed, Settings(draft_tokens=1, slots=2), choice=choice)
    for name in ("a", "b", "c"):
        engine.run([replace(request(name), prompt_ids=(7,))])
    untimed = sum(seconds is None for _, seconds, _ in choice.steps)
    assert untimed == 3, "the first step of each request"


def test_where_drafts_are_free_they_are_made(small: Pair) -> None:
    """Costs that make drafting free: they are made, whatever becomes of them."""
    free = StepCosts(StepCost(1, arm, 0.01) for arm in range(3))
    engine = make_device_engine(
        small.packed, Settings(draft_tokens=2, slots=1), choice=AdaptiveChoice(free, fewest_tried=1)
    )
    engine.run([request("a")])
    assert len(engine.acceptance.proposed) == 2
    assert engine.status().recent_acceptance == engine.acceptance
