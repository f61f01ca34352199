"""Device steps on a GPU, on the embedded checkpoint: a recorded step is the eager one bit for bit, and the
text is the CPU's up to near-ties, for every batch size and number of drafts.

python -m pytest -m gpu tests/device/test_gpu.py; -m gpu_long for every shape
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof.device.graphs import CudaGraphs, Eager
from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from tests.device.embedded import embedded_requests, load_embedded
from tests.device.near_ties import count_partings
from tests.support.device_engines import make_device_engine
from tests.support.engines import Settings, run_alone, texts

REQUESTS = embedded_requests(9, 24)
FEW = REQUESTS[:4]
SETTINGS = Settings(max_length=512)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_embedded(torch.bfloat16, packed=True, device=torch.device("cuda"))


@pytest.fixture(scope="module")
def exact() -> LoadedModel:
    return load_embedded(torch.float32)


@pytest.fixture(scope="module")
def rounded() -> LoadedModel:
    return load_embedded(torch.bfloat16)


@pytest.fixture(scope="module")
def few_expected(exact: LoadedModel) -> tuple[Completion, ...]:
    return tuple(run_alone(exact, FEW, SETTINGS))


@pytest.fixture(scope="module")
def expected(exact: LoadedModel) -> tuple[Completion, ...]:
    return tuple(run_alone(exact, REQUESTS, SETTINGS))


def run(
    model: LoadedModel, requests: list[Request], draft_tokens: int, slots: int, recorded: bool = True
) -> tuple[Completion, ...]:
    settings = replace(SETTINGS, draft_tokens=draft_tokens, slots=slots)
    recorder = CudaGraphs() if recorded else Eager()
    engine = make_device_engine(model, settings, torch.device("cuda"), recorder)
    completions = engine.run(requests)
    engine.check_integrity()
    return completions


@pytest.mark.gpu
@pytest.mark.parametrize(("draft_tokens", "slots"), [(0, 2), (3, 1)])
def test_a_recorded_step_is_the_eager_one(model: LoadedModel, draft_tokens: int, slots: int) -> None:
    requests = REQUESTS[: max(slots, 2)]
    recorded = texts(run(model, requests, draft_tokens, slots))
    assert recorded == texts(run(model, requests, draft_tokens, slots, recorded=False))
    assert recorded == texts(run(model, requests, draft_tokens, slots))


@pytest.mark.gpu
@pytest.mark.parametrize(("draft_tokens", "slots"), [(0, 2), (3, 1)])
def test_the_text_of_the_cpu_up_to_near_ties(
    model: LoadedModel,
    exact: LoadedModel,
    rounded: LoadedModel,
    few_expected: tuple[Completion, ...],
    draft_tokens: int,
    slots: int,
) -> None:
    got = run(model, FEW, draft_tokens, slots)
    assert count_partings(exact, rounded, FEW, few_expected, got) < len(FEW)


@pytest.mark.gpu_long
@pytest.mark.parametrize("draft_tokens", range(6))
@pytest.mark.parametrize("slots", range(1, 10))
def test_every_batch_size_and_number_of_drafts(
    model: LoadedModel,
    exact: LoadedModel,
    rounded: LoadedModel,
    expected: tuple[Completion, ...],
    draft_tokens: int,
    slots: int,
) -> None:
    recorded = run(model, REQUESTS, draft_tokens, slots)
    assert texts(recorded) == texts(run(model, REQUESTS, draft_tokens, slots, recorded=False))
    assert count_partings(exact, rounded, REQUESTS, expected, recorded) < len(REQUESTS)
