"""The same engine on a CUDA device: the embedded checkpoint's text is the CPU's, with and without
speculation.

python -m pytest -m gpu tests/engine/test_cuda.py
"""

from __future__ import annotations

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import EngineConfig
from draftproof.engine.request import Request
from draftproof.links.prompts import shipped_prompts
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.tokenizer import Tokenizer

pytestmark = pytest.mark.gpu

TOKENS = 64


@pytest.fixture(scope="module")
def texts():
    """Token ids by device, temperature and number of drafts, for every shipped code prompt."""
    checkpoint = open_checkpoint("tiny")
    tokenizer = Tokenizer.load(checkpoint.folder)
    prompts = [prompt for prompt in shipped_prompts(checkpoint) if prompt.kind == "code"]
    found = {}
    for device in ("cpu", "cuda"):
        engine = build_engine(checkpoint, EngineConfig(device=device, max_length=1024)).engine
        for temperature in (0.0, 0.8):
            for drafts in (0, 3):
                requests = [
                    Request(
                        prompt.name,
                        tuple(tokenizer.encode(prompt.text)),
                        SamplingParameters(
                            temperature=temperature, seed=5, max_tokens=TOKENS, ignore_eos=True
                        ),
                        drafts,
                    )
                    for prompt in prompts
                ]
                done = engine.run(requests)
                found[device, temperature, drafts] = [completion.token_ids for completion in done]
    return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_changes_nothing_on_the_device(texts, temperature):
    assert texts["cuda", temperature, 3] == texts["cuda", temperature, 0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_device_writes_what_the_cpu_writes(texts, temperature):
    assert texts["cuda", temperature, 0] == texts["cpu", temperature, 0]
