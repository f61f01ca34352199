"""What a sequence's state *is* after its last commit, whatever way it got there."""

from __future__ import annotations

from torch import Tensor

from draftproof.kernels.gated_delta_step.reference import RecurrentState, settled_state
from draftproof.layers.decoder import RecurrentLayer
from draftproof.layers.window import KeyValueCache
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.runtime.state_store import StateStore


def snapshot(model: Qwen35Model, store: StateStore, slot: int) -> tuple[Tensor, ...]:
    """Copies of the state that plain decoding would hold at this length: pending rows applied, no drafts.

    Returns:
        Two tensors per trunk layer: recurrent state [1, heads, key_dim, value_dim] and convolution inputs
        [1, conv_kernel - 1, conv_dim], or keys and values [positions, heads, head_dim].
    """
    tensors: list[Tensor] = []
    for layer, state in zip(model.layers, store.trunk, strict=True):
        if isinstance(layer, RecurrentLayer):
            assert isinstance(state, RecurrentState)
            tensors.extend(settled_state(layer.mixer.parameters, state, store.pending_rows(slot)))
        else:
            assert isinstance(state, KeyValueCache)
            tensors.extend(store.committed_pages(state, slot))
    return tuple(tensors)
