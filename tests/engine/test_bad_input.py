"""What cannot be served is refused by name before anything runs, and leaves the engine as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.engine.request import Request
from draftproof.errors import UsageError
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from tests.support.engines import Settings, make_engine, nextn, random_prompt

GOOD = Request("good", random_prompt(8, 1), SamplingParameters(max_tokens=6, ignore_eos=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_ids": ()}, "the prompt has no tokens"),
        ({"prompt_ids": (5, 320)}, "token id 320 is outside the vocabulary of 320"),
        ({"prompt_ids": (-1, 5)}, "token id -1 is outside the vocabulary of 320"),
        ({"prompt_ids": (1,) * 40}, "the prompt has 40 tokens, but the context holds 40 with the output"),
        ({"prompt_ids": (1,) * 500}, "the prompt has 500 tokens"),
        ({"prompt_ids": (4, 306, 5)}, "the prompt holds image token 306"),
        ({"prompt_ids": (4, 307, 306)}, "the prompt holds image token 306"),
        ({"request_id": "running"}, "request id running is in use"),
        (
            {"parameters": SamplingParameters(stop_token_ids=(320,))},
            "token 320 is not in the vocabulary of 320 tokens",
        ),
        (
            {"parameters": SamplingParameters(logit_bias=((999, 1.0),))},
            "token 999 is not in the vocabulary of 320 tokens",
        ),
        ({"draft_tokens": -1}, "draft_tokens"),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(
    small_model: LoadedModel, change: dict[str, object], message: str
) -> None:
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, max_length=40))
    engine.add(replace(GOOD, request_id="running"))
    engine.step()
    with pytest.raises(UsageError, match=message):
        engine.add(replace(GOOD, **change))  # type: ignore[arg-type]
    while engine.has_work:
        engine.step()
    engine.check_integrity()
    assert len(engine.run([GOOD])[0].token_ids) == 6


def test_a_prompt_that_just_fits(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, max_length=40))
    assert len(engine.run([replace(GOOD, prompt_ids=(1,) * 39)])[0].token_ids) == 1


def test_a_request_for_more_pages_than_there_are(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, max_length=100, page_size=4, pages=10))
    with pytest.raises(UsageError, match="request good needs 13 pages of 4 positions, but there are 9"):
        engine.add(replace(GOOD, prompt_ids=random_prompt(40, 2)))
    assert not engine.has_work
    # the id is free again
    assert len(engine.run([GOOD])[0].token_ids) == 6


@pytest.mark.parametrize("bad", [replace(GOOD, prompt_ids=()), GOOD])
def test_a_bad_request_among_several_leaves_none_of_them_behind(
    small_model: LoadedModel, bad: Request
) -> None:
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3))
    with pytest.raises(UsageError):
        engine.run([GOOD, bad])
    assert not engine.has_work
    engine.check_integrity()
