"""An engine tells its alarms what happens, and its status shows them until their cause is gone."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.engine import Engine
from draftproof.engine.request import Request
from draftproof.engine.status import AlarmKind
from draftproof.errors import EngineFault
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.scripted import anti, oracle
from tests.support.engines import Settings, make_engine, random_prompt, run_alone, scripted, texts

LONG = Settings(draft_tokens=2, slots=2, max_length=500)


def request(name: str, **fields: object) -> Request:
    parameters = {"temperature": 4.0, "seed": 2, "max_tokens": 230, "ignore_eos": True, **fields}
    return Request(name, random_prompt(6, 1), SamplingParameters(**parameters))  # type: ignore[arg-type]


def kinds(engine: Engine) -> list[AlarmKind]:
    return [alarm.kind for alarm in engine.status().alarms]


def test_drafts_that_are_never_right(small_model: LoadedModel) -> None:
    references = texts(run_alone(small_model, [request("r")], LONG))
    vocabulary = small_model.target.spec.vocab_size
    wrong = make_engine(small_model, scripted(anti(references, vocabulary)), LONG)
    wrong.run([request("r")])
    status = wrong.status()
    assert [alarm.kind for alarm in status.alarms] == [AlarmKind.COLLAPSED_ACCEPTANCE]
    assert status.alarms[0].request_ids == ("r",)
    assert status.recent_acceptance.acceptance_rate == 0.0
    right = make_engine(small_model, scripted(oracle(references)), LONG)
    right.run([request("r")])
    assert right.status().alarms == ()
    assert right.status().recent_acceptance == right.acceptance


def test_an_output_in_circles_while_it_runs(small_model: LoadedModel) -> None:
    """A bias leaves the model one token."""
    engine = make_engine(small_model, settings=LONG)
    engine.add(request("circle", ignore_eos=False, logit_bias=((7, 100.0),), max_tokens=260))
    seen = set()
    while engine.has_work:
        engine.step()
        seen.update(kinds(engine))
    assert seen == {AlarmKind.REPETITION}
    assert kinds(engine) == []


def test_who_has_to_go_on_after_the_end_may_go_round_in_circles(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, settings=LONG)
    engine.add(request("circle", logit_bias=((7, 100.0),), max_tokens=260))
    while engine.has_work:
        engine.step()
        assert kinds(engine) == []


def test_a_lost_request(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, settings=LONG)
    engine.add(request("lost"))
    engine.step()
    for state in engine.store.trunk:
        for pool in vars(state).values():
            if isinstance(pool, torch.Tensor):
                pool.fill_(torch.nan)
    with pytest.raises(EngineFault):
        engine.step()
    (alarm,) = engine.status().alarms
    assert (alarm.kind, alarm.request_ids) == (AlarmKind.FAULTS, ("lost",))
