"""What a CUDA device gets wired, tried on a CPU: device steps, with their slack and number of drafts."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.build import draft_slack, load_target, state_sizes, wire_device_engine
from draftproof.engine.config import DrafterName, EngineConfig
from draftproof.engine.request import Request
from draftproof.kernels.select import kernels_for
from draftproof.models.stored_linear import DenseBackend
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.sampling import SamplingParameters
from tests.support.checkpoints import WrittenCheckpoint
from tests.support.device_engines import load_packed
from tests.support.engines import CPU


@pytest.mark.parametrize(
    ("config", "drafter"),
    [
        (EngineConfig(device="cuda", max_sequences=2, draft_tokens=2), "nextn"),
        (EngineConfig(device="cuda", drafter=DrafterName.NONE, draft_tokens=0), "none"),
    ],
    ids=["nextn", "none"],
)
def test_a_gpu_gets_device_steps(
    bfloat16_folder: WrittenCheckpoint, config: EngineConfig, drafter: str
) -> None:
    target = load_target(config)
    assert (target.storage, target.backend) == (WeightStorage.PACKED, DenseBackend.PACKED_BLOCKS)
    loaded = load_packed(bfloat16_folder.folder, dtype=target.dtype)
    with torch.inference_mode():
        engine = wire_device_engine(loaded, kernels_for(CPU), state_sizes(config, 40), config, 40, CPU)
    assert engine.drafter_name == drafter
    # A sequence that fills the context, whose last windows reach past it.
    full = Request("full", (5,) * 20, SamplingParameters(max_tokens=20, ignore_eos=True))
    (done,) = engine.run([full])
    assert len(done.token_ids) == 20
    engine.check_integrity()


def test_drafts_of_a_device_step_may_reach_two_windows_past_the_end() -> None:
    assert draft_slack(EngineConfig(draft_tokens=3)) == 4
    assert draft_slack(EngineConfig(draft_tokens=3, device="cuda")) == 8


def test_a_small_draft_vocabulary_changes_the_drafts_and_not_the_text(
    bfloat16_folder: WrittenCheckpoint,
) -> None:
    texts, proposed = [], []
    for choice in ("all", "40"):
        config = EngineConfig(device="cuda", max_sequences=1, draft_tokens=2, draft_vocabulary=choice)
        loaded = load_packed(bfloat16_folder.folder, dtype=torch.bfloat16)
        with torch.inference_mode():
            engine = wire_device_engine(loaded, kernels_for(CPU), state_sizes(config, 40), config, 40, CPU)
        request = Request("one", (5, 6, 7), SamplingParameters(max_tokens=20, ignore_eos=True))
        (done,) = engine.run([request])
        texts.append(done.token_ids)
        proposed.append(engine.acceptance.proposed)
    assert texts[0] == texts[1]
    assert all(counts[0] > 0 for counts in proposed)


def test_acceptance_is_what_it_is_simulated_to_be(bfloat16_folder: WrittenCheckpoint) -> None:
    config = EngineConfig(device="cuda", max_sequences=1, draft_tokens=2, simulated_accept_length=2.5)
    loaded = load_packed(bfloat16_folder.folder, dtype=torch.bfloat16)
    with torch.inference_mode():
        engine = wire_device_engine(loaded, kernels_for(CPU), state_sizes(config, 40), config, 40, CPU)
    engine.run([Request("one", (5, 6, 7), SamplingParameters(max_tokens=21, ignore_eos=True))])
    assert engine.acceptance.accept_length == pytest.approx(2.5)
