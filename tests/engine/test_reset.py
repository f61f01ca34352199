"""After any exception in the middle of a step, a reset engine is as good as new."""

import pytest

from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from tests.support.engines import Settings, make_engine, nextn

SETTINGS = Settings(draft_tokens=3, slots=2, prompt_chunk=4)
STEPS_BEFORE = (0, 1, 4)
"""Exceptions in the first prompt chunk, in a later one, and between decode steps."""


def request(name: str) -> Request:
    return Request(name, (5, 9, 2, 7, 11, 3), SamplingParameters(max_tokens=12))


@pytest.mark.parametrize("steps", STEPS_BEFORE)
def test_texts_after_a_reset_are_those_of_a_new_engine(
    small_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    expected = make_engine(small_model, nextn, SETTINGS).run([request("a"), request("b")])
    engine = make_engine(small_model, nextn, SETTINGS)
    for name in "xyz":
        engine.add(request(name))
    for _ in range(steps):
        engine.step()
    with monkeypatch.context() as broken:
        broken.setattr(type(engine.model), "forward", _fail)
        with pytest.raises(RuntimeError, match="out of the blue"):
            engine.step()
    engine.reset()
    assert not engine.has_work
    assert engine.run([request("a"), request("b")]) == expected


def _fail(*_: object) -> None:
    raise RuntimeError("out of the blue")
