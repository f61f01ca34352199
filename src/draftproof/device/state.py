"""All per-sequence state of device steps: pools, and where every sequence stands, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import AttentionSpec, GatedDeltaNetSpec, ModelSpec
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.layers.window import KeyValueCache
from draftproof.runtime.pages import SCRAP_PAGE
from draftproof.runtime.state_store import LayerPools, StateSizes, StateStore

DeviceLayerState = KeyValueCache | DeviceRecurrentState


@dataclass(frozen=True)
class DeviceState:
    """Pools of every layer and the geometry that steps read.

    Attributes:
        sizes: how much of it; the scrap slot comes on top.
        trunk: state of the target's layers, in order.
        head: keys and values of the MTP head's layers.
        lengths: [slots + 1] int32, committed positions.
        pending: [slots + 1] int32, accepted rows still in the stash.
        parity: [slots + 1] int32, newest side of the double-buffered pools.
        page_table: [slots + 1, pages per sequence] int32.
        prompts: the same pools as prompt steps see them, which run before a sequence's first device step:
            parity 0, nothing pending.
    """

    sizes: StateSizes
    trunk: tuple[DeviceLayerState, ...]
    head: tuple[KeyValueCache, ...]
    lengths: Tensor
    pending: Tensor
    parity: Tensor
    page_table: Tensor
    prompts: StateStore

    @staticmethod
    def allocate(
        spec: ModelSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device
    ) -> DeviceState:
        """Zeros: no sequence.

        Args:
            spec: what the layers keep.
            sizes: how much of it.
            dtype: of keys, values and convolution inputs.
            device: where it lives.
        """
        trunk = tuple(_layer_state(layer.mixer, sizes, dtype, device) for layer in spec.layers)
        head_mixers = [spec.mtp.layer.mixer] * spec.mtp.num_layers if spec.mtp else []
        head = tuple(
            _pages(mixer, sizes, dtype, device) for mixer in head_mixers if isinstance(mixer, AttentionSpec)
        )

        def whole(*shape: int) -> Tensor:
            return torch.zeros(sizes.slots + 1, *shape, dtype=torch.int32, device=device)

        prompt_pools = LayerPools(tuple(_seen_by_prompts(state) for state in trunk), head)
        return DeviceState(
            sizes=sizes,
            trunk=trunk,
            head=head,
            lengths=whole(),
            pending=whole(),
            parity=whole(),
            page_table=whole(-(-sizes.max_positions // sizes.page_size)),
            prompts=StateStore(spec, sizes, dtype, device, prompt_pools),
        )

    @property
    def scrap_slot(self) -> int:
        """Slot of a bucket's unused places; its pages are the scrap page."""
        return self.sizes.slots

    def open_slot(self, slot: int, pages: Sequence[int]) -> None:
        """Give a slot to a new sequence: nothing committed, its pages in order."""
        for counter in (self.lengths, self.pending, self.parity):
            counter[slot] = 0
        self.page_table[slot] = SCRAP_PAGE
        self.page_table[slot, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        self.prompts.open_slot(slot, pages)

    def geometry(self, slots: Tensor, rows: int, lengths: Tensor | None = None) -> StepGeometry:
        """How a step sees the sequences of `slots` ([batch] int32).

        Args:
            slots: of the batch.
            rows: of each sequence.
            lengths: other positions than the committed ones; a chain of drafts has its own.
        """
        return StepGeometry(
            rows=rows,
            slots=slots,
            lengths=self.lengths if lengths is None else lengths,
            pending=self.pending,
            parity=self.parity,
            page_table=self.page_table,
            page_size=self.sizes.page_size,
        )


def _seen_by_prompts(state: DeviceLayerState) -> KeyValueCache | RecurrentState:
    if isinstance(state, KeyValueCache):
        return state
    return RecurrentState(
        recurrent=state.recurrent,
        convolution=state.convolution[0],
        stash_inputs=state.stash_inputs[0],
        stash_log_decay=state.stash_log_decay[0],
        stash_beta=state.stash_beta[0],
    )


def _layer_state(
    mixer: AttentionSpec | GatedDeltaNetSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device
) -> DeviceLayerState:
    if isinstance(mixer, AttentionSpec):
        return _pages(mixer, sizes, dtype, device)
    return DeviceRecurrentState.allocate(
        mixer, sizes.slots + 1, sizes.window_rows, device=device, dtype=dtype
    )


def _pages(
    mixer: AttentionSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device
) -> KeyValueCache:
    shape = (sizes.pages, sizes.page_size, mixer.num_key_value_heads, mixer.head_dim)
    # Zeros, not empty: a masked score is multiplied by whatever lies in the page.
    return KeyValueCache(
        torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device)
    )
