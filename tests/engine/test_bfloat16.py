"""In bfloat16 the text may differ only where two tokens tie within rounding; anything else is a defect.

The model is dense: with experts, a near-tie in a router swaps an expert, and no bound on logits tells that
from a defect.
"""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.scripted import anti, oracle, pattern
from tests.engine.near_ties import part
from tests.support.checkpoints import WrittenCheckpoint
from tests.support.engines import (
    Settings,
    load,
    make_engine,
    nextn,
    random_prompt,
    run_alone,
    scripted,
    texts,
)

REQUESTS = [
    Request(
        f"r{number}",
        random_prompt(length, number),
        SamplingParameters(temperature=temperature, max_tokens=40, seed=number, ignore_eos=True),
    )
    for number, (length, temperature) in enumerate([(5, 0.0), (18, 0.0), (33, 0.8), (16, 1.3), (9, 0.8)])
]


@pytest.fixture(scope="module")
def low(bfloat16_folder: WrittenCheckpoint) -> LoadedModel:
    return load(bfloat16_folder.folder, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def alone(low: LoadedModel) -> dict[str, tuple[int, ...]]:
    return texts(run_alone(low, REQUESTS))


@pytest.mark.parametrize("draft_tokens", [1, 3])
@pytest.mark.parametrize("drafter", ["nextn", "oracle", "anti", "mixed"])
def test_differences_are_near_ties(
    low: LoadedModel, alone: dict[str, tuple[int, ...]], drafter: str, draft_tokens: int
) -> None:
    makers = {
        "nextn": nextn,
        "oracle": scripted(oracle(alone)),
        "anti": scripted(anti(alone, 320)),
        "mixed": scripted(pattern(alone, 320, [2, None, 1, None, 0, None])),
    }
    found = texts(make_engine(low, makers[drafter], Settings(draft_tokens=draft_tokens)).run(REQUESTS))
    for request in REQUESTS:
        parting = part(low, request, alone[request.request_id], found[request.request_id])
        assert parting is None or parting.is_near_tie, f"{request.request_id}: {parting}"


def test_a_wrong_token_is_no_near_tie(low: LoadedModel, alone: dict[str, tuple[int, ...]]) -> None:
    """The comparator itself: a token swapped for any other one is a defect, and so is a text cut short."""
    for request in REQUESTS[::2]:
        text = alone[request.request_id]
        for index in (0, 17, 39):
            wrong = (*text[:index], (text[index] + 1) % 320, *text[index + 1 :])
            parting = part(low, request, text, wrong)
            assert parting is not None
            assert parting.index == index
            assert not parting.is_near_tie
        cut = part(low, request, text, text[:30])
        assert cut is not None
        assert not cut.is_near_tie


def test_a_tie_is_a_near_tie(low: LoadedModel, alone: dict[str, tuple[int, ...]]) -> None:
    """Two rows of lm_head that are equal but for rounding: either token may win."""
    request = REQUESTS[0]
    text = alone[request.request_id]
    twin = (text[3] + 1) % 320
    columns = low.target.lm_head.columns  # type: ignore[attr-defined]
    kept = columns[:, twin].clone()
    with torch.inference_mode():
        columns[:, twin] = columns[:, text[3]]
    try:
        parting = part(low, request, text, (*text[:3], twin, *text[4:]))
    finally:
        with torch.inference_mode():
            columns[:, twin] = kept
    assert parting is not None
    assert parting.gap == 0.0
    assert parting.is_near_tie


def test_the_state_is_float32_where_it_accumulates(low: LoadedModel) -> None:
    engine = make_engine(low, nextn, Settings(draft_tokens=3))
    engine.run(REQUESTS[:1])
    assert engine.store.trunk[0].recurrent.dtype == torch.float32  # type: ignore[union-attr]
    assert torch.isfinite(engine.store.trunk[0].recurrent[0]).all()  # type: ignore[union-attr]
