"""What an engine says of a request while it runs: its phase, and each step's share of its acceptance."""

from functools import reduce

from draftproof.engine.request import Request, RequestPhase
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import AcceptanceCounts
from tests.support.engines import Settings, make_engine, nextn

TWO_LONG = Settings(draft_tokens=3, slots=1, prompt_chunk=4)


def request(name: str, tokens: int = 12) -> Request:
    return Request(name, (5, 9, 2, 7, 11, 3), SamplingParameters(max_tokens=tokens))


def test_acceptance_of_steps_adds_up_to_the_requests(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, nextn, TWO_LONG)
    engine.add(request("a"))
    steps = []
    while engine.has_work:
        steps += [output.acceptance for output in engine.step()]
    assert steps[0].passes == 0, "the prompt's last row verifies nothing"
    assert reduce(AcceptanceCounts.__add__, steps) == engine.acceptance
    assert engine.acceptance.passes > 0


def test_a_request_waits_starts_and_is_gone(small_model: LoadedModel) -> None:
    engine = make_engine(small_model, nextn, TWO_LONG)
    engine.add(request("first"))
    engine.add(request("second"))
    assert engine.phase("first") is engine.phase("second") is RequestPhase.WAITING
    engine.step()
    assert (engine.phase("first"), engine.phase("second")) == (RequestPhase.STARTED, RequestPhase.WAITING)
    engine.abort("first")
    engine.step()
    assert (engine.phase("first"), engine.phase("second")) == (RequestPhase.GONE, RequestPhase.STARTED)
    while engine.has_work:
        engine.step()
    assert engine.phase("second") is RequestPhase.GONE
    assert engine.phase("never added") is RequestPhase.GONE
