"""After any exception in the middle of a step, a reset engine is as good as new."""

import pytest

from draftproof.device.machine import StepMachine
from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.request import Request
from draftproof.runtime.sampling import SamplingParameters
from tests.device.conftest import Pair
from tests.support.device_engines import make_device_engine
from tests.support.engines import Settings

SETTINGS = Settings(draft_tokens=3, slots=2, prompt_chunk=4)


def request(name: str) -> Request:
    return Request(name, (5, 9, 2, 7, 11, 3), SamplingParameters(max_tokens=12))


@pytest.mark.parametrize("part", ["launch", "collect"])
@pytest.mark.parametrize("steps", [0, 3, 6])
def test_texts_after_a_reset_are_those_of_a_new_engine(
    small: Pair, monkeypatch: pytest.MonkeyPatch, part: str, steps: int
) -> None:
    expected = make_device_engine(small.packed, SETTINGS).run([request("a"), request("b")])
    engine = make_device_engine(small.packed, SETTINGS)
    for name in "xyz":
        engine.add(request(name))
    for _ in range(steps):
        engine.step()
    with monkeypatch.context() as broken:
        broken.setattr(StepMachine, part, _fail)
        with pytest.raises(RuntimeError, match="out of the blue"):
            _run(engine)
    engine.reset()
    assert not engine.has_work
    assert engine.run([request("a"), request("b")]) == expected


def _run(engine: DeviceEngine) -> None:
    while engine.has_work:
        engine.step()


def _fail(*_: object) -> None:
    raise RuntimeError("out of the blue")
