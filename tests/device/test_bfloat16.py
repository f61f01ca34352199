"""Device steps in bfloat16, in which GPUs run them, by every op's definition, on the embedded checkpoint: the
text of float32 up to near-ties, speculation or not."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.request import Completion
from draftproof.models.loading import LoadedModel
from tests.device.embedded import embedded_requests, load_embedded
from tests.device.near_ties import count_partings
from tests.support.device_engines import make_device_engine
from tests.support.engines import Settings, run_alone

REQUESTS = embedded_requests(3, 20)


@pytest.fixture(scope="module")
def exact() -> LoadedModel:
    return load_embedded(torch.float32)


@pytest.fixture(scope="module")
def expected(exact: LoadedModel) -> tuple[Completion, ...]:
    return tuple(run_alone(exact, REQUESTS, Settings(max_length=320)))


@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_the_text_of_float32_up_to_near_ties(
    exact: LoadedModel, expected: tuple[Completion, ...], draft_tokens: int
) -> None:
    packed = load_embedded(torch.bfloat16, packed=True)
    engine = make_device_engine(packed, Settings(draft_tokens=draft_tokens, slots=3, max_length=320))
    got = engine.run(REQUESTS)
    assert count_partings(exact, load_embedded(torch.bfloat16), REQUESTS, expected, got) < len(REQUESTS)
    # The embedded head was trained: it is right more often than not.
    assert draft_tokens == 0 or engine.acceptance.accept_length > 1.5
