"""Whatever K is chosen from step to step, the text is the same, and drafts are accepted as before."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from draftproof.engine.request import Completion, Request
from draftproof.engine.unseen_rows import MOST_UNSEEN_ROWS
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.draft_choice import AdaptiveChoice
from draftproof.speculation.step_costs import StepCost, StepCosts
from tests.engine.test_same_text import check, make_requests
from tests.support.draft_choices import PatternChoice
from tests.support.engines import Settings, make_engine, nextn, random_prompt, run_alone, texts
from tests.support.random_lives import next_turn, random_requests, run_lives


@pytest.fixture(scope="module")
def requests(model: LoadedModel) -> list[Request]:
    return make_requests(model)


@pytest.fixture(scope="module")
def expected(model: LoadedModel, requests: list[Request]) -> dict[str, Completion]:
    return {completion.request_id: completion for completion in run_alone(model, requests)}


@pytest.mark.parametrize(
    ("pattern", "slots"), [((0,), 6), ((0, 3), 1), ((3, 0, 1, 2), 6), ((1, 0, 0, 0, 0, 4), 1)]
)
def test_the_text_never_depends_on_it(
    model: LoadedModel,
    requests: list[Request],
    expected: dict[str, Completion],
    pattern: tuple[int, ...],
    slots: int,
) -> None:
    engine = make_engine(
        model, nextn, Settings(draft_tokens=4, slots=slots, prompt_chunk=16), PatternChoice(pattern)
    )
    check(engine.run(requests), expected)
    engine.check_integrity()


def test_nor_on_what_is_measured(
    model: LoadedModel, requests: list[Request], expected: dict[str, Completion]
) -> None:
    costs = StepCosts(StepCost(batch, arm, 0.01 + 0.0001 * arm) for batch in (1, 4) for arm in range(4))
    engine = make_engine(model, nextn, Settings(draft_tokens=3), AdaptiveChoice(costs))
    check(engine.run(requests[:6]), expected)


def test_nor_do_aborts_kept_prompts_and_preemption_mind(small_model: LoadedModel) -> None:
    requests = random_requests(30, seed=8, longest=30, most_tokens=24)
    reference = make_engine(small_model)
    alone = texts([reference.run([one])[0] for one in requests])
    settings = Settings(draft_tokens=3, slots=4, page_size=4, prompt_chunk=7, pages=20, snapshots=6)
    engine = make_engine(small_model, nextn, settings, PatternChoice([3, 0, 0, 1, 0, 0, 0, 2]))
    assert run_lives(engine, requests, alone, 60, random.Random(4)) > 30
    assert engine.status().preemptions > 0


def test_an_output_of_plain_steps_is_kept_for_the_next_turn(small_model: LoadedModel) -> None:
    """The head catches up with what is kept, so that who goes on can draft."""
    settings = Settings(draft_tokens=2, slots=1, page_size=4, snapshots=4)
    engine = make_engine(small_model, nextn, settings, PatternChoice([0] * 90 + [2] * 200))
    first = long_request("first")
    (answer,) = engine.run([first])
    (second,) = engine.run([next_turn(first, answer.token_ids, (1, 2, 3), "second")])
    assert second.cached_tokens == len(first.prompt_ids) + len(answer.token_ids) - 1
    assert sum(second.acceptance.proposed) > 0


def long_request(name: str, draft_tokens: int | None = None, max_tokens: int = 90) -> Request:
    parameters = SamplingParameters(seed=3, temperature=4.0, max_tokens=max_tokens, ignore_eos=True)
    return Request(name, random_prompt(20, 5), parameters, draft_tokens)


def test_a_head_that_catches_up_drafts_as_if_it_had_seen_every_step(small_model: LoadedModel) -> None:
    """A plain stretch that is longer than rows are kept for, then drafts: the same ones are accepted as by a
    head that was shown each row at once."""
    plain_steps = MOST_UNSEEN_ROWS + 7
    settings = Settings(draft_tokens=1, slots=1, max_length=300)
    request = long_request("r", max_tokens=plain_steps + 100)

    def accepted(pattern: Sequence[int]) -> tuple[int, ...]:
        choice = PatternChoice(pattern)
        make_engine(small_model, nextn, settings, choice).run([request])
        return tuple(sum(counts.accepted) for _, _, counts in choice.steps)

    caught_up = accepted([0] * plain_steps + [1] * 300)
    # An accepted draft makes steps fewer: what counts is at which token a window begins.
    always = _accepted_after(accepted([1]), plain_steps)
    assert always > 3
    assert abs(sum(caught_up) - always) <= 1


def _accepted_after(accepted: Sequence[int], tokens: int) -> int:
    """Accepted drafts of the windows that begin after so many tokens."""
    produced, total = 0, 0
    for each in accepted:
        total += each if produced >= tokens else 0
        produced += 1 + each
    return total


def test_the_choice_sees_the_batch_and_everybodys_limit(small_model: LoadedModel) -> None:
    choice = PatternChoice([3])
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, slots=3), choice)
    engine.run([long_request("a"), long_request("b", 0), long_request("c", 1)])
    assert (3, 0, 1) in choice.limits
    assert max(map(len, choice.limits)) == 3


def test_steps_of_one_width_are_timed_and_those_between_two_are_not(small_model: LoadedModel) -> None:
    choice = PatternChoice([2] * 5 + [1] * 5)
    make_engine(small_model, nextn, Settings(draft_tokens=2, slots=1), choice).run([long_request("r")])
    timed = [seconds is not None for _, seconds, _ in choice.steps]
    widths = [decision.draft_tokens for decision, _, _ in choice.steps]
    following = [*widths[1:], -1]
    assert timed[:-1] == [now == later for now, later in zip(widths, following, strict=True)][:-1]
    assert not timed[-1]


def test_a_step_with_a_request_without_speculation_is_not_timed(small_model: LoadedModel) -> None:
    """Its windows are of different widths."""
    choice = PatternChoice([2])
    engine = make_engine(small_model, nextn, Settings(draft_tokens=2, slots=2), choice)
    engine.run([long_request("a"), long_request("b", 0)])
    assert all(seconds is None for decision, seconds, _ in choice.steps if decision.batch == 2)
