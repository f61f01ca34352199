"""A sequence that gives up its state and is computed again has the text of one that never did."""

from __future__ import annotations

import pytest

from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.scripted import oracle, pattern
from tests.support.engines import (
    DrafterMaker,
    Settings,
    make_engine,
    nextn,
    plain,
    random_prompt,
    run_alone,
    scripted,
    texts,
)


def request(number: int) -> Request:
    """Every kind of sampling that has a memory of the output, and log probabilities."""
    parameters = SamplingParameters(
        temperature=(0.0, 0.8, 4.0)[number % 3],
        seed=number,
        max_tokens=30,
        min_tokens=5,
        ignore_eos=True,
        frequency_penalty=0.5 if number == 1 else 0.0,
        logprobs=2 if number == 2 else None,
    )
    return Request(f"r{number}", random_prompt(10 + 3 * number, number), parameters)


REQUESTS = [request(number) for number in range(4)]
TIGHT = Settings(draft_tokens=3, slots=4, page_size=4, prompt_chunk=8, pages=26)
"""One of the requests needs 13 pages; four at their ends need 48."""


@pytest.fixture(scope="module")
def alone(small_model: LoadedModel) -> dict[str, tuple[int, ...]]:
    return texts(run_alone(small_model, REQUESTS))


@pytest.mark.parametrize("snapshots", [0, 4])
@pytest.mark.parametrize("drafter", ["none", "nextn", "oracle", "mixed"])
def test_texts_do_not_change(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]], drafter: str, snapshots: int
) -> None:
    makers: dict[str, DrafterMaker] = {
        "none": plain,
        "nextn": nextn,
        "oracle": scripted(oracle(alone)),
        "mixed": scripted(pattern(alone, 320, [3, None, 0, 1])),
    }
    settings = Settings(**{**vars(TIGHT), "snapshots": snapshots})
    engine = make_engine(small_model, makers[drafter], settings)
    completions = engine.run(REQUESTS)
    assert texts(completions) == alone
    assert len(completions[2].logprobs) == 30
    assert engine.status().preemptions > 0
    engine.check_integrity()


def test_log_probabilities_do_not_change(small_model: LoadedModel) -> None:
    (expected,) = run_alone(small_model, [REQUESTS[2]])
    got = make_engine(small_model, nextn, TIGHT).run(REQUESTS)[2]
    for one, other in zip(got.logprobs, expected.logprobs, strict=True):
        assert one.token_id == other.token_id
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_the_head_drafts_on_after_a_recomputation(small_model: LoadedModel) -> None:
    """It has seen all rows again, the output's too."""
    hot = [
        Request(f"r{number}", random_prompt(12, number), SamplingParameters(4.0, seed=number, max_tokens=40))
        for number in range(3)
    ]
    roomy = make_engine(small_model, nextn, Settings(draft_tokens=3))
    roomy.run(hot)
    engine = make_engine(small_model, nextn, Settings(**{**vars(TIGHT), "pages": 22}))
    engine.run(hot)
    assert engine.status().preemptions > 0
    # The pass after a recomputation has no drafts; nearly all others have the same as ever.
    assert sum(engine.acceptance.accepted) > 0.8 * sum(roomy.acceptance.accepted) > 5


def test_a_preempted_request_can_be_aborted(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, nextn, TIGHT)
    for one in REQUESTS:
        engine.add(one)
    while not engine.status().preemptions:
        engine.step()
    for one in REQUESTS[::-1]:
        engine.abort(one.request_id)
        engine.check_integrity()
    assert not engine.has_work
    assert engine.status().pages_used == 0
