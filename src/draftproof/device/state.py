"""All per-sequence state of device steps: pools, and where every sequence stands, on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import AttentionSpec, GatedDeltaNetSpec, ModelSpec
from draftproof.kernels.advance.state import SlotProgress, SlotRules
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.kernels.row_sampling.slot_sampling import NO_TOKEN, SlotSampling
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.layers.window import KeyValueCache
from draftproof.runtime.pages import SCRAP_PAGE
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.state_store import LayerPools, StateSizes, StateStore

DeviceLayerState = KeyValueCache | DeviceRecurrentState

MOST_STOP_TOKENS = 16
"""Stop tokens that the device looks for; a request with more is stopped by the host, a step later."""

ALL_TOKENS = torch.iinfo(torch.int32).max
"""top-k that keeps every token."""


@dataclass(frozen=True)
class SequenceRules:
    """What a request fixes for its sequence.

    Attributes:
        newest: token of the first window's first row: the last one that is known.
        max_tokens: most output tokens to come.
        min_tokens: output tokens to come before a stop token counts.
        draft_limit: most drafts of a window.
        stop_token_ids: what ends the output.
        parameters: how tokens are chosen.
    """

    newest: int
    max_tokens: int
    min_tokens: int
    draft_limit: int
    stop_token_ids: tuple[int, ...]
    parameters: SamplingParameters


@dataclass(frozen=True)
class DeviceState:
    """Pools of every layer and the geometry that steps read.

    Attributes:
        sizes: how much of it; the scrap slot comes on top.
        trunk: state of the target's layers, in order.
        head: keys and values of the MTP head's layers.
        progress: where every slot's sequence stands.
        rules: what ends its output and how many drafts it may have.
        sampling: how its tokens are chosen.
        page_table: [slots + 1, pages per sequence] int32.
        prompts: the same pools as prompt steps see them, which run before a sequence's first device step:
            parity 0, nothing pending.
    """

    sizes: StateSizes
    trunk: tuple[DeviceLayerState, ...]
    head: tuple[KeyValueCache, ...]
    progress: SlotProgress
    rules: SlotRules
    sampling: SlotSampling
    page_table: Tensor
    prompts: StateStore

    @staticmethod
    def allocate(spec: ModelSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device) -> DeviceState:
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

        slots = sizes.slots + 1
        pages_per_sequence = -(-sizes.max_positions // sizes.page_size)
        prompt_pools = LayerPools(tuple(_seen_by_prompts(state) for state in trunk), head)
        return DeviceState(
            sizes=sizes,
            trunk=trunk,
            head=head,
            progress=SlotProgress.make(slots, sizes.window_rows - 1, device),
            rules=SlotRules.make(slots, MOST_STOP_TOKENS, device),
            sampling=SlotSampling.greedy(slots, device),
            page_table=torch.zeros(slots, pages_per_sequence, dtype=torch.int32, device=device),
            prompts=StateStore(spec, sizes, dtype, device, prompt_pools),
        )

    @property
    def scrap_slot(self) -> int:
        """Slot of a bucket's unused places; its pages are the scrap page."""
        return self.sizes.slots

    def open_slot(self, slot: int, pages: Sequence[int], rules: SequenceRules) -> None:
        """Give a slot to a new sequence: nothing committed, its pages in order."""
        progress = self.progress
        for counter in (progress.lengths, progress.pending, progress.parity, progress.draft_counts):
            counter[slot] = 0
        progress.running[slot] = 1
        progress.inputs[slot, 0] = rules.newest
        progress.remaining[slot] = rules.max_tokens
        progress.unstoppable[slot] = rules.min_tokens
        self.rules.draft_limit[slot] = rules.draft_limit
        stops = [*rules.stop_token_ids, *[NO_TOKEN] * MOST_STOP_TOKENS][:MOST_STOP_TOKENS]
        self.rules.stop_tokens[slot].copy_(torch.tensor(stops, dtype=torch.int32), non_blocking=True)
        self._set_sampling(slot, rules.parameters)
        self.set_pages(slot, [*pages, *[SCRAP_PAGE] * (self.page_table.shape[1] - len(pages))])
        self.prompts.open_slot(slot, pages)

    def set_pages(self, slot: int, pages: Sequence[int]) -> None:
        """Tell steps all pages of a slot's sequence, in order: those that it had, and more."""
        # Ordinary memory is read before the call returns, so nothing waits for the steps in flight.
        self.page_table[slot, : len(pages)].copy_(torch.tensor(pages, dtype=torch.int32), non_blocking=True)

    def restore_snapshot(self, slot: int, snapshot: int, length: int) -> None:
        """Begin a slot that was just opened with a kept state; its first pages hold the keys and values."""
        self.prompts.restore_snapshot(slot, snapshot, length)
        self.progress.lengths[slot] = length

    def save_settled(self, slot: int, snapshot: int, length: int, steps_after_end: int) -> None:
        """Keep the recurrent state of a slot whose output has ended.

        Args:
            slot: of the sequence.
            snapshot: where to.
            length: rows that the state has taken in. Without a step after the end, those before its last
                window (or all of them, when that was one row wide); with one, which replayed that window,
                all.
            steps_after_end: steps wider than one row that were launched for the sequence after the device had
                found the end of its output, 0 or 1. (When only the host found it, the step was one like all.)
        """
        # Such a step writes the other side and does not turn the slot.
        side = self.progress.parity[slot : slot + 1].long() ^ steps_after_end
        layers = (state for state in self.trunk if isinstance(state, DeviceRecurrentState))
        rows = (
            (state.recurrent[slot], state.convolution[:, slot].index_select(0, side)[0]) for state in layers
        )
        self.prompts.kept.save(snapshot, length, rows)

    def _set_sampling(self, slot: int, parameters: SamplingParameters) -> None:
        sampling = self.sampling
        sampling.temperature[slot] = 0.0 if parameters.is_greedy else parameters.temperature
        sampling.seeds[slot] = parameters.signed_seed
        sampling.top_k[slot] = parameters.top_k if parameters.top_k > 0 else ALL_TOKENS
        sampling.top_p[slot] = parameters.top_p
        sampling.min_p[slot] = parameters.min_p

    def live_drafts(self, slots: Sequence[int], draft_tokens: int) -> list[tuple[int, ...]]:
        """Drafts of the next window of each slot, at most `draft_tokens`; waits for the device."""
        index = torch.tensor(slots, device=self.page_table.device)
        inputs = self.progress.inputs[index].tolist()
        counts = self.progress.draft_counts[index].tolist()
        return [
            tuple(row[1 : 1 + min(count, draft_tokens)]) for row, count in zip(inputs, counts, strict=True)
        ]

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
            lengths=self.progress.lengths if lengths is None else lengths,
            pending=self.progress.pending,
            parity=self.progress.parity,
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
