"""After every step the state is the one that plain decoding has at that length, whatever was rejected on the
way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.sequence import Sequence
from draftproof.runtime.snapshot import snapshot
from draftproof.speculation.scripted import Script, anti, oracle, pattern
from tests.support.engines import DrafterMaker, Settings, make_engine, nextn, plain, random_prompt, scripted

Snapshots = dict[int, tuple[Tensor, ...]]


def request_of(prompt_length: int, max_tokens: int, name: str = "r", temperature: float = 0.0) -> Request:
    parameters = SamplingParameters(
        max_tokens=max_tokens, ignore_eos=True, temperature=temperature, seed=prompt_length
    )
    return Request(name, random_prompt(prompt_length, prompt_length), parameters)


def steps(engine: Engine, slots: int = 1) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Run an engine to its end; lengths of the first slots and new tokens of the first request, per step."""
    while engine.has_work:
        outputs = engine.step()
        yield (
            [engine.store.length(slot) for slot in range(slots)],
            tuple(token for output in outputs for token in output.token_ids),
        )


def plain_run(
    model: LoadedModel, request: Request, max_length: int = 256
) -> tuple[tuple[int, ...], Snapshots]:
    """The text of plain decoding and the state at every length from the prompt on."""
    engine = make_engine(model, plain, Settings(max_length=max_length, slots=1))
    engine.add(request)
    tokens: list[int] = []
    states: Snapshots = {}
    for lengths, new in steps(engine):
        tokens.extend(new)
        states[lengths[0]] = snapshot(model.target, engine.store, 0)
    return tuple(tokens), states


def assert_same_state(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def check_run(
    model: LoadedModel,
    request: Request,
    reference: tuple[tuple[int, ...], Snapshots],
    maker: DrafterMaker,
    k: int,
) -> list[int]:
    """Run one request alone with a drafter and compare everything; committed lengths after each step."""
    text, states = reference
    engine = make_engine(model, maker, Settings(draft_tokens=k, max_length=256, slots=1))
    engine.add(request)
    tokens: list[int] = []
    seen = []
    for lengths, new in steps(engine):
        tokens.extend(new)
        # The last step may commit past the end of the text, where plain decoding has no state to compare.
        if lengths[0] in states:
            assert_same_state(snapshot(model.target, engine.store, 0), states[lengths[0]])
        seen.append(lengths[0])
    assert tuple(tokens) == text
    engine.check_integrity()
    return seen


def test_zero_draft_steps_between_accepted_ones(small_model: LoadedModel) -> None:
    request = request_of(9, 185)
    reference = plain_run(small_model, request)
    vocabulary = small_model.target.spec.vocab_size
    script = pattern({"r": reference[0]}, vocabulary, [2, None, 1, None, 0, None] * 20)
    lengths = check_run(small_model, request, reference, scripted(script), 2)
    kept = [after - before for before, after in pairwise(lengths)]
    assert kept[:12] == [3, 1, 2, 1, 1, 1] * 2


@pytest.mark.parametrize("prompt_length", range(13, 20))
def test_acceptance_that_ends_on_a_page_border(small_model: LoadedModel, prompt_length: int) -> None:
    request = request_of(prompt_length, 24)
    reference = plain_run(small_model, request)
    vocabulary = small_model.target.spec.vocab_size
    for accepted in (0, 1, 2):
        script = pattern({"r": reference[0]}, vocabulary, [accepted])
        check_run(small_model, request, reference, scripted(script), 2)


def one_rejection(text: tuple[int, ...], position: int, vocabulary: int) -> Script:
    """Right drafts, except that the one for output token `position` is wrong."""
    right = oracle({"r": text})

    def script(sequence: Sequence, wanted: int) -> list[int]:
        drafts = list(right(sequence, wanted))
        index = position - len(sequence.output)
        if 0 <= index < len(drafts):
            drafts[index] = (drafts[index] + 1) % vocabulary
        return drafts

    return script


@pytest.fixture(scope="module")
def forty(small_model: LoadedModel) -> tuple[Request, tuple[tuple[int, ...], Snapshots]]:
    request = request_of(7, 48, temperature=0.8)
    return request, plain_run(small_model, request)


@pytest.mark.parametrize("position", range(1, 41))
def test_a_rejection_at_every_position(
    small_model: LoadedModel, forty: tuple[Request, tuple[tuple[int, ...], Snapshots]], position: int
) -> None:
    request, reference = forty
    script = one_rejection(reference[0], position, small_model.target.spec.vocab_size)
    lengths = check_run(small_model, request, reference, scripted(script), 3)
    # prompt + position tokens are committed by the step that rejects: its recovered token is the newest one
    assert len(request.prompt_ids) + position in lengths


@pytest.mark.parametrize("draft_tokens", [1, 2, 4, 5])
def test_every_layer_of_a_deeper_model(model: LoadedModel, draft_tokens: int) -> None:
    request = request_of(21, 40, temperature=1.3)
    reference = plain_run(model, request)
    vocabulary = model.target.spec.vocab_size
    for maker in (
        nextn,
        scripted(oracle({"r": reference[0]})),
        scripted(anti({"r": reference[0]}, vocabulary)),
        scripted(pattern({"r": reference[0]}, vocabulary, [None, 5, 0, 2])),
    ):
        check_run(model, request, reference, maker, draft_tokens)


def test_states_of_a_batch_are_those_of_its_members(small_model: LoadedModel) -> None:
    """Four sequences of different lengths and different luck share every window."""
    requests = [request_of(length, 30, f"r{length}") for length in (3, 17, 33, 16)]
    references = {request.request_id: plain_run(small_model, request) for request in requests}
    texts = {name: text for name, (text, _) in references.items()}
    vocabulary = small_model.target.spec.vocab_size
    scripts = {
        "r3": oracle(texts),
        "r17": anti(texts, vocabulary),
        "r33": pattern(texts, vocabulary, [1, None, 3]),
        "r16": pattern(texts, vocabulary, [0, 2]),
    }
    maker = scripted(lambda sequence, wanted: scripts[sequence.request_id](sequence, wanted))
    engine = make_engine(small_model, maker, Settings(draft_tokens=3, slots=4, prompt_chunk=10))
    for request in requests:
        engine.add(request)
    compared = 0
    for lengths, _ in steps(engine, slots=4):
        # Pages of finished sequences go to those that grow.
        running = {sequence.slot for sequence in engine._scheduler.running}
        for slot, request in enumerate(requests):
            states = references[request.request_id][1]
            if slot in running and lengths[slot] in states:
                assert_same_state(snapshot(small_model.target, engine.store, slot), states[lengths[slot]])
                compared += 1
    assert compared > 70
    engine.check_integrity()
