"""After every device step the state is the one that plain decoding has at that length, whatever was rejected
on the way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.device.state import DeviceState
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.kernels.gated_delta_step.reference import RecurrentState, WindowRows, settled_state
from draftproof.layers.decoder import RecurrentLayer
from draftproof.models.loading import LoadedModel
from tests.device.conftest import Pair
from tests.engine.test_state import assert_same_state, plain_run, request_of
from tests.support.device_engines import ScriptedDrafts, make_device_engine
from tests.support.engines import Settings


def snapshot(model: LoadedModel, state: DeviceState, slot: int) -> tuple[Tensor, ...]:
    """As `runtime.snapshot`: pending rows applied, committed positions of the pages."""
    progress = state.progress
    side, pending, length = (
        int(each[slot]) for each in (progress.parity, progress.pending, progress.lengths)
    )
    window = WindowRows(torch.tensor([slot]), slice(slot, slot + 1), (pending,), (0,), None, False)
    tensors: list[Tensor] = []
    for layer, pools in zip(model.target.layers, state.trunk, strict=True):
        if isinstance(pools, DeviceRecurrentState):
            assert isinstance(layer, RecurrentLayer)
            newest = RecurrentState(
                pools.recurrent,
                pools.convolution[side],
                pools.stash_inputs[side],
                pools.stash_log_decay[side],
                pools.stash_beta[side],
            )
            tensors.extend(settled_state(layer.mixer.parameters, newest, window))
        else:
            pages = state.page_table[slot].long()
            tensors.extend(pool[pages].flatten(0, 1)[:length].clone() for pool in (pools.keys, pools.values))
    return tuple(tensors)


@pytest.mark.parametrize("draft_tokens", [0, 1, 3, 5])
@pytest.mark.parametrize("accepted", [(None,), (0,), (3, 0, 1, 5)], ids=["right", "wrong", "mixed"])
@pytest.mark.parametrize("prompt_length", [1, 16])
def test_the_state_is_that_of_plain_decoding(
    small: Pair, draft_tokens: int, accepted: tuple[int | None, ...], prompt_length: int
) -> None:
    request = request_of(prompt_length, 22)
    text, states = plain_run(small.plain, request)
    drafts = ScriptedDrafts({"r": text}, 320, accepted)
    settings = Settings(draft_tokens=draft_tokens, slots=3, page_size=4, max_length=256)
    engine = make_device_engine(small.packed, settings, drafts=drafts)
    engine.add(request)
    tokens: list[int] = []
    compared = 0
    with torch.inference_mode():
        while engine.has_work:
            tokens += [token for output in engine.step() for token in output.token_ids]
            length = int(engine.machine.state.progress.lengths[0])
            # The step that runs ahead of an ended output replays its stash once more; nobody reads that.
            if length in states and engine.machine.state.progress.running[0]:
                assert_same_state(snapshot(small.packed, engine.machine.state, 0), states[length])
                compared += 1
    assert tuple(tokens) == text
    assert compared >= 18 // (draft_tokens + 1)
