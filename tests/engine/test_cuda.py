"""The same engine on a CUDA device: the embedded checkpoint's text is the CPU's, and speculation changes none
of it, up to near-ties of bfloat16, each of which is looked at.

python -m pytest -m gpu tests/engine/test_cuda.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import EngineConfig
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Completion, Request
from draftproof.links.prompts import shipped_prompts
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.tokenizer import Tokenizer
from tests.device.embedded import load_embedded
from tests.device.near_ties import count_partings

pytestmark = pytest.mark.gpu

TOKENS = 48

Write = Callable[[str, float, int], tuple[Completion, ...]]


@pytest.fixture(scope="module")
def exact() -> LoadedModel:
    return load_embedded(torch.float32)


@pytest.fixture(scope="module")
def rounded() -> LoadedModel:
    return load_embedded(torch.bfloat16)


def requests_at(temperature: float, drafts: int) -> list[Request]:
    """Every shipped code prompt."""
    checkpoint = open_checkpoint("tiny")
    assert checkpoint.folder is not None
    tokenizer = Tokenizer.load(checkpoint.folder)
    parameters = SamplingParameters(temperature=temperature, seed=5, max_tokens=TOKENS, ignore_eos=True)
    return [
        Request(prompt.name, tuple(tokenizer.encode(prompt.text)), parameters, drafts)
        for prompt in shipped_prompts(checkpoint)
        if prompt.kind == "code"
    ]


@pytest.fixture(scope="module")
def write() -> Write:
    """What an engine on a device answers at a temperature with so many drafts."""

    @cache
    def engine_on(device: str) -> EngineLoop:
        return build_engine(open_checkpoint("tiny"), EngineConfig(device=device, max_length=1024)).engine

    @cache
    def answers(device: str, temperature: float, drafts: int) -> tuple[Completion, ...]:
        return tuple(engine_on(device).run(requests_at(temperature, drafts)))

    return answers


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("device", "drafts"), [("cpu", 0), ("cuda", 3)], ids=["the CPU", "speculation on the device"]
)
def test_a_device_writes_without_speculation_what_is_written_by(
    write: Write, exact: LoadedModel, rounded: LoadedModel, device: str, drafts: int, temperature: float
) -> None:
    expected, got = write("cuda", temperature, 0), write(device, temperature, drafts)
    requests = requests_at(temperature, drafts)
    assert count_partings(exact, rounded, requests, expected, got) < len(requests)


def test_the_embedded_head_drafts_as_well_as_on_the_cpu(write: Write) -> None:
    """A text can be right while every draft is thrown away."""

    def accepted_share(device: str) -> float:
        counts = [completion.acceptance for completion in write(device, 0.0, 3)]
        return sum(sum(each.accepted) for each in counts) / sum(sum(each.proposed) for each in counts)

    assert accepted_share("cuda") == pytest.approx(accepted_share("cpu"), abs=0.1)
