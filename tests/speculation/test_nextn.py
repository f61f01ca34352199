"""NEXTN's drafts are a function of the committed tokens alone.

However those got there, the drafts are the ones of the head run afresh over the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch

from draftproof.engine.request import Request
from draftproof.kernels.noise.reference import gumbel_noise
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.state_store import StateStore, WindowKind
from draftproof.speculation.drafter import CommittedRows, Drafter, Drafts
from draftproof.speculation.nextn import NextnDrafter
from tests.support.checkpoints import FP32, CheckpointOptions, Sizes, WrittenCheckpoint
from tests.support.engines import Settings, load, make_engine, make_store, random_prompt


@pytest.fixture(scope="module")
def model(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> LoadedModel:
    sizes = Sizes(layers=2, full_attention_interval=2)
    return load(checkpoint(CheckpointOptions(moe=True, precision=FP32, sizes=sizes)).folder)


@dataclass
class Recorder:
    """NEXTN that remembers for which tokens it proposed what, and spoils some proposals afterwards.

    Every third gets a wrong second draft and every fourth is withheld, so that windows end everywhere.
    """

    inner: NextnDrafter
    seen: list[tuple[Request, tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    name: str = "recorder"
    keeps_rows: bool = True

    def propose(self, rows: CommittedRows) -> Drafts:
        proposals = []
        for sequence, drafts, wanted in zip(
            rows.sequences, self.inner.propose(rows), rows.wanted, strict=True
        ):
            tokens = (*sequence.prompt, *sequence.output)
            self.seen.append((self.requests[sequence.request_id], tokens, drafts, wanted))
            turn = len(self.seen)
            if turn % 4 == 0:
                drafts = ()
            elif turn % 3 == 0 and len(drafts) > 1:
                drafts = (drafts[0], (drafts[1] + 1) % 320, *drafts[2:])
            proposals.append(drafts)
        return tuple(proposals)


@torch.inference_mode()
def afresh(model: LoadedModel, request: Request, tokens: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """Drafts after `tokens`, the last one not committed: one pass of target and head, then a chain."""
    assert model.head is not None
    count = len(tokens) - 1
    store = make_store(model, Settings(slots=1, max_length=count + depth + 1))
    store.open_slot(0, range(1, store.sizes.pages))
    window = store.begin([0], [count], WindowKind.EXTEND)
    hidden = model.target.forward(torch.tensor([tokens[:-1]]), window.window)
    rows = store.attention_rows([0], [0], [count])
    hidden = model.head.forward(torch.tensor([tokens[1:]]), hidden, rows, store.head_caches)[:, -1:]
    drafts: list[int] = []
    for step in range(depth):
        drafts.append(draw(model.head.logits(hidden)[0, 0], request.parameters, len(tokens) + step))
        rows = store.attention_rows([0], [count + step], [1])
        hidden = model.head.forward(torch.tensor([drafts[-1:]]), hidden, rows, store.head_caches)
    return tuple(drafts)


def draw(logits: torch.Tensor, parameters: SamplingParameters, position: int) -> int:
    """The target's rule for one row: the largest logit, or the largest of logit / temperature + noise."""
    if parameters.is_greedy:
        return int(logits.argmax())
    seed, place = torch.tensor([parameters.signed_seed]), torch.tensor([position])
    noise = gumbel_noise(seed, place, torch.arange(logits.shape[0]))[0]
    return int((logits.double() / parameters.temperature + noise).argmax())


def record(model: LoadedModel, requests: list[Request], settings: Settings) -> Recorder:
    recorders: list[Recorder] = []

    def make(model: LoadedModel, store: StateStore) -> Drafter:
        assert model.head is not None
        recorder = Recorder(NextnDrafter(model.head, store))
        recorder.requests = {request.request_id: request for request in requests}
        recorders.append(recorder)
        return recorder

    make_engine(model, make, settings).run(requests)
    return recorders[0]


def request_of(name: str, prompt_length: int, temperature: float, max_tokens: int = 20) -> Request:
    parameters = SamplingParameters(
        temperature=temperature, seed=prompt_length, max_tokens=max_tokens, ignore_eos=True
    )
    return Request(name, random_prompt(prompt_length, prompt_length), parameters)


@pytest.mark.parametrize("temperature", [0.0, 1.3, 4.0])
@pytest.mark.parametrize("chunk", [5, 64])
def test_drafts_do_not_depend_on_what_was_rejected_before(
    model: LoadedModel, temperature: float, chunk: int
) -> None:
    request = request_of("r", 17, temperature)
    recorder = record(model, [request], Settings(draft_tokens=4, prompt_chunk=chunk, slots=1))
    checked = [entry for entry in recorder.seen if entry[3]]
    assert len(checked) > 8
    for owner, tokens, drafts, wanted in checked:
        assert drafts == afresh(model, owner, tokens, wanted)


def test_drafts_do_not_depend_on_neighbours(model: LoadedModel) -> None:
    """Ragged windows, different numbers of drafts wanted, sequences that come, go first, or never draft."""
    requests = [
        request_of("first to go", 3, 4.0, 5),
        replace(request_of("plain", 5, 0.0), draft_tokens=0),
        request_of("long prompt", 30, 4.0, 12),
        request_of("late", 16, 1.3, 30),
    ]
    recorder = record(model, requests, Settings(draft_tokens=3, prompt_chunk=7, slots=3))
    assert {entry[0].request_id for entry in recorder.seen} == {"first to go", "long prompt", "late"}
    for owner, tokens, drafts, wanted in recorder.seen:
        assert drafts == afresh(model, owner, tokens, wanted)


def test_nothing_is_drafted_inside_a_prompt_nor_past_the_limit(model: LoadedModel) -> None:
    recorder = record(model, [request_of("r", 12, 0.0, 6)], Settings(draft_tokens=4, prompt_chunk=5, slots=1))
    for owner, tokens, drafts, wanted in recorder.seen:
        produced = len(tokens) - len(owner.prompt_ids)
        assert len(drafts) == wanted <= 4
        # a pass adds one token more than it accepts
        assert wanted + 1 <= max(6 - produced, 1)
    assert [wanted for _, _, _, wanted in recorder.seen][:3] == [0, 0, 4]
