"""Logits that mean nothing cost the requests of that step, and nothing else."""

from __future__ import annotations

import pytest
import torch

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import EngineConfig
from draftproof.engine.request import Request, RequestPhase
from draftproof.errors import EngineFault
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import FinishReason


def request(name, prompt, **parameters):
    return Request(name, prompt, SamplingParameters(ignore_eos=True, max_tokens=8, **parameters))


@pytest.fixture
def engine(moe_checkpoint):
    return build_engine(open_checkpoint(str(moe_checkpoint.folder)), EngineConfig(max_length=64)).engine


def run_to_the_end(engine):
    while engine.has_work:
        engine.step()


def poison(engine, slot):
    """NaN in everything that belongs to one slot, as a broken kernel would leave it."""
    for state in engine.store.trunk:
        for pool in vars(state).values():
            if isinstance(pool, torch.Tensor) and pool.shape[0] == engine.store.sizes.slots:
                pool[slot] = torch.nan


def test_the_requests_of_the_step_are_dropped_and_the_engine_goes_on(engine):
    expected = engine.run([request("first", (1, 2, 3))])[0].token_ids
    engine.add(request("lost", (4, 5, 6)))
    engine.step()
    poison(engine, 0)
    with pytest.raises(EngineFault):
        run_to_the_end(engine)
    assert not engine.has_work
    engine.check_integrity()
    assert engine.run([request("again", (1, 2, 3))])[0].token_ids == expected


def test_pages_of_a_lost_request_do_not_spoil_the_next_one(engine):
    prompts = {"long": tuple(range(1, 30)), "short": (7, 8)}
    expected = {
        done.request_id: done.token_ids for done in engine.run([request(*row) for row in prompts.items()])
    }
    engine.add(request("lost", tuple(range(40, 60))))
    engine.step()
    poison(engine, 0)
    with pytest.raises(EngineFault):
        run_to_the_end(engine)
    found = {
        done.request_id: done.token_ids for done in engine.run([request(*row) for row in prompts.items()])
    }
    assert found == expected


def test_a_request_that_finishes_in_the_step_of_a_fault_is_not_lost(engine):
    engine.add(Request("whole", (1, 2, 3), SamplingParameters(ignore_eos=True, max_tokens=4), 0))
    engine.add(Request("lost", (4, 5, 6), SamplingParameters(ignore_eos=True, max_tokens=8), 0))
    counts = {"whole": 0, "lost": 0}
    while counts["whole"] < 3 or not counts["lost"]:
        for output in engine.step():
            counts[output.request_id] += len(output.token_ids)
    assert counts["whole"] == 3, "its last token is made in the step of the fault"
    poison(engine, 1)
    with pytest.raises(EngineFault, match="lost"):
        engine.step()
    assert (engine.phase("whole"), engine.phase("lost")) == (RequestPhase.STARTED, RequestPhase.GONE)
    (last,) = engine.step()
    assert (last.request_id, last.finish_reason) == ("whole", FinishReason.LENGTH)
    assert engine.phase("whole") is RequestPhase.GONE
