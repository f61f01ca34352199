"""Requests that share an engine do not know of each other: batches, chunks, aborts, slots and pages."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.scripted import anti, oracle, pattern
from tests.support.engines import (
    DrafterMaker,
    Settings,
    make_engine,
    nextn,
    plain,
    random_prompt,
    run_alone,
    scripted,
    texts,
)


def request_of(number: int, prompt_length: int, max_tokens: int, temperature: float) -> Request:
    parameters = SamplingParameters(
        temperature=temperature,
        seed=number,
        max_tokens=max_tokens,
        ignore_eos=True,
        frequency_penalty=0.5 if number % 3 == 0 else 0.0,
    )
    return Request(f"r{number}", random_prompt(prompt_length, number), parameters)


REQUESTS = [
    request_of(0, 5, 30, 0.0),
    request_of(1, 37, 12, 0.8),
    request_of(2, 16, 1, 0.0),
    request_of(3, 1, 25, 0.8),
    request_of(4, 20, 18, 1.3),
    request_of(5, 9, 2, 0.0),
]


@pytest.fixture(scope="module")
def alone(small_model: LoadedModel) -> dict[str, tuple[int, ...]]:
    return texts(run_alone(small_model, REQUESTS))


def makers(alone: dict[str, tuple[int, ...]]) -> dict[str, DrafterMaker]:
    """Drafters by name; patterns start afresh with each engine."""
    return {
        "none": plain,
        "nextn": nextn,
        "oracle": scripted(oracle(alone)),
        "anti": scripted(anti(alone, 320)),
        "mixed": lambda model, store: scripted(pattern(alone, 320, [3, None, 0, 1]))(model, store),
    }


@pytest.mark.parametrize("drafter", ["none", "nextn", "mixed"])
@pytest.mark.parametrize("slots", [2, 6])
def test_any_order_gives_every_request_its_own_text(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]], drafter: str, slots: int
) -> None:
    for order in (REQUESTS, REQUESTS[::-1], [REQUESTS[index] for index in (3, 0, 5, 1, 4, 2)]):
        k = 0 if drafter == "none" else 3
        engine = make_engine(small_model, makers(alone)[drafter], Settings(draft_tokens=k, slots=slots))
        assert texts(engine.run(order)) == alone
        engine.check_integrity()


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
@pytest.mark.parametrize("drafter", ["none", "nextn"])
def test_any_prompt_chunk_gives_the_same_text(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]], chunk: int, drafter: str
) -> None:
    k = 0 if drafter == "none" else 2
    engine = make_engine(
        small_model, makers(alone)[drafter], Settings(draft_tokens=k, slots=6, prompt_chunk=chunk)
    )
    assert texts(engine.run(REQUESTS)) == alone


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
def test_the_head_drafts_the_same_whatever_the_prompt_chunk(small_model: LoadedModel, chunk: int) -> None:
    """Its cache is filled by chunks too: acceptance must not depend on them."""
    hot = [request_of(10 + number, 25, 30, 4.0) for number in range(3)]
    whole = make_engine(small_model, nextn, Settings(draft_tokens=3))
    whole.run(hot)
    assert sum(whole.acceptance.accepted) > 5
    chunked = make_engine(small_model, nextn, Settings(draft_tokens=3, prompt_chunk=chunk))
    chunked.run(hot)
    assert chunked.acceptance == whole.acceptance


def test_requests_with_their_own_k_inside_a_speculating_batch(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]]
) -> None:
    mixed = [
        replace(request, draft_tokens=k) for request, k in zip(REQUESTS, [0, 1, 2, 3, 9, None], strict=True)
    ]
    for drafter in ("oracle", "anti", "mixed", "nextn"):
        engine = make_engine(small_model, makers(alone)[drafter], Settings(draft_tokens=3, slots=6))
        assert texts(engine.run(mixed)) == alone


@pytest.mark.parametrize("drafter", ["nextn", "oracle", "anti"])
def test_an_abort_disturbs_nobody(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]], drafter: str
) -> None:
    """One request is dropped while waiting, one in its prompt, one while decoding; the rest goes on."""
    engine = make_engine(
        small_model, makers(alone)[drafter], Settings(draft_tokens=3, slots=3, prompt_chunk=4)
    )
    for request in REQUESTS:
        engine.add(request)
    found: dict[str, list[int]] = {request.request_id: [] for request in REQUESTS}
    for number in itertools.count():
        if not engine.has_work:
            break
        for output in engine.step():
            found[output.request_id].extend(output.token_ids)
        if number == 2:
            engine.abort("r5")  # waits
            engine.abort("r1")  # reads its prompt
        if number == 6:
            engine.abort("r0")  # decodes
            engine.abort("r0")
            engine.abort("never heard of")
        engine.check_integrity()
    assert 0 < len(found["r0"]) < 30
    for name in ("r2", "r3", "r4"):
        assert tuple(found[name]) == alone[name]
    for name, tokens in found.items():
        assert tuple(tokens) == alone[name][: len(tokens)]
    engine.check_integrity()


def test_an_aborted_id_can_be_used_again(small_model: LoadedModel, alone: dict[str, tuple[int, ...]]) -> None:
    engine = make_engine(small_model, nextn, Settings(draft_tokens=3, slots=1))
    engine.add(REQUESTS[1])
    for _ in range(4):
        engine.step()
    engine.abort("r1")
    assert engine.run([REQUESTS[1]])[0].token_ids == alone["r1"]


def test_a_soak_of_rejections_with_an_abort_in_the_middle(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]]
) -> None:
    """Two slots that always hold low-acceptance requests, 200 steps: nothing breaks and no text changes."""
    engine = make_engine(
        small_model, makers(alone)["anti"], Settings(draft_tokens=3, slots=2, prompt_chunk=8)
    )
    found: dict[str, list[int]] = {}
    dropped = 0
    for number in range(200):
        waiting = [request for request in REQUESTS if request.request_id not in found]
        if waiting and len(found) < 3:
            engine.add(waiting[number % len(waiting)])
            found[waiting[number % len(waiting)].request_id] = []
        for output in engine.step():
            found[output.request_id].extend(output.token_ids)
            if output.finish_reason is not None:
                assert tuple(found.pop(output.request_id)) == alone[output.request_id]
        if number % 37 == 36 and found:
            name = next(iter(found))
            engine.abort(name)
            del found[name]
            dropped += 1
        engine.check_integrity()
    assert dropped > 3


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_life_of_an_engine(
    small_model: LoadedModel, alone: dict[str, tuple[int, ...]], data: st.DataObject
) -> None:
    """Requests come, go and are dropped in any order; every text is right and nothing leaks."""
    drafter = data.draw(st.sampled_from(["none", "nextn", "oracle", "anti", "mixed"]), label="drafter")
    engine = make_engine(
        small_model,
        makers(alone)[drafter],
        Settings(
            draft_tokens=0 if drafter == "none" else data.draw(st.integers(1, 5), label="k"),
            slots=data.draw(st.integers(1, 4), label="slots"),
            page_size=data.draw(st.sampled_from([4, 16]), label="page size"),
            prompt_chunk=data.draw(st.sampled_from([1, 5, 64]), label="chunk"),
            pages=data.draw(st.sampled_from([None, 24]), label="pages"),
        ),
    )
    inside: dict[str, list[int]] = {}

    def step() -> None:
        for output in engine.step():
            inside[output.request_id].extend(output.token_ids)
            if output.finish_reason is not None:
                assert tuple(inside.pop(output.request_id)) == alone[output.request_id]
        engine.check_integrity()

    for _ in range(data.draw(st.integers(1, 25), label="events")):
        event = data.draw(st.sampled_from(["add", "add", "step", "steps", "abort"]), label="event")
        outside = [request for request in REQUESTS if request.request_id not in inside]
        if event == "add" and outside:
            request = data.draw(st.sampled_from(outside), label="request")
            inside[request.request_id] = []
            engine.add(request)
        elif event == "abort" and inside:
            name = data.draw(st.sampled_from(sorted(inside)), label="aborted")
            engine.abort(name)
            del inside[name]
            engine.check_integrity()
        else:
            for _ in range(1 if event == "step" else 6):
                step()
    while engine.has_work:
        step()
    assert not inside
    engine.check_integrity()
