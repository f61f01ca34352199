"""The one owner of all per-sequence state, moved by transaction.

A step begins a window over some slots, runs the model on it, and commits a number of rows per sequence;
nothing else moves state. Attention pages need no rollback: a rejected row lies past the committed length and
is overwritten before anybody reads it. Recurrent state rolls back by lazy replay: a window's rows go to a
stash, and the next window applies the accepted ones first (`kernels.gated_delta_step`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from itertools import count, takewhile

import torch
from torch import Tensor

from draftproof.architecture.spec import AttentionSpec, GatedDeltaNetSpec, ModelSpec
from draftproof.kernels.gated_delta_step.reference import RecurrentState, WindowRows
from draftproof.layers.window import AttentionRows, KeyValueCache, LayerState, Window
from draftproof.runtime.kept_states import KeptStates
from draftproof.runtime.pages import SCRAP_PAGE


class WindowKind(Enum):
    """What will become of a window's rows."""

    EXTEND = "extend"
    """Every row is certain (prompt tokens, or a step without drafts) and will be committed."""
    VERIFY = "verify"
    """A sampled token followed by drafts: at least one row, at most all, will be committed."""


@dataclass(frozen=True)
class StateSizes:
    """How much state to hold.

    Attributes:
        slots: sequences at a time.
        pages: attention pages, the scrap page included.
        page_size: positions per page.
        max_positions: positions of one sequence, drafts past its end included.
        window_rows: rows of the largest VERIFY window (drafts + 1).
        snapshots: recurrent states that are kept for prompts that begin alike.
    """

    slots: int
    pages: int
    page_size: int
    max_positions: int
    window_rows: int
    snapshots: int = 0


@dataclass(frozen=True)
class LayerPools:
    """State of all layers.

    Attributes:
        trunk: of the target's layers, in order.
        head: keys and values of the MTP head's layers.
    """

    trunk: tuple[LayerState, ...]
    head: tuple[KeyValueCache, ...]


def state_bytes(spec: ModelSpec, sizes: StateSizes, dtype: torch.dtype) -> int:
    """What a store of these sizes takes; nothing is allocated."""
    pools = _allocate(spec, sizes, dtype, torch.device("meta"))
    tensors = [_tensors_of(state) for state in (*pools.trunk, *pools.head)]
    recurrent = [state for state in pools.trunk if isinstance(state, RecurrentState)]
    of_slots = sum(state.recurrent.nbytes + state.convolution.nbytes for state in recurrent)
    pages_per_sequence = -(-sizes.max_positions // sizes.page_size)
    return (
        sum(tensor.nbytes for of_layer in tensors for tensor in of_layer)
        + of_slots // sizes.slots * sizes.snapshots
        + sizes.slots * pages_per_sequence * torch.int64.itemsize
    )


def _tensors_of(state: LayerState) -> list[Tensor]:
    return [getattr(state, field.name) for field in fields(state)]


class StateStore:
    """Pages and slots of one model and its MTP head.

    Args:
        spec: what the layers keep.
        sizes: how much of it.
        dtype: of keys, values and convolution inputs; the recurrent state is float32.
        device: where it lives.
        pools: the layers' state when it is somebody else's and only prompts go through this store; None makes
            it.
    """

    def __init__(
        self,
        spec: ModelSpec,
        sizes: StateSizes,
        dtype: torch.dtype,
        device: torch.device,
        pools: LayerPools | None = None,
    ) -> None:
        self.sizes = sizes
        self._device = device
        pools = pools or _allocate(spec, sizes, dtype, device)
        self._trunk, self.head_caches = pools.trunk, pools.head
        pages_per_sequence = -(-sizes.max_positions // sizes.page_size)
        self._page_tables = torch.full((sizes.slots, pages_per_sequence), SCRAP_PAGE, device=device)
        self._lengths = [0] * sizes.slots
        self._pending = [0] * sizes.slots
        self._first_pages = [SCRAP_PAGE] * sizes.slots
        # How many of a slot's pages follow each other from the first on.
        self._straight = [0] * sizes.slots
        self._open: Transaction | None = None
        self.kept = KeptStates(self._trunk, sizes.snapshots)

    def open_slot(self, slot: int, pages: Sequence[int]) -> None:
        """Give a slot to a new sequence: no committed rows, its pages in order."""
        self._lengths[slot] = 0
        self._pending[slot] = 0
        self._page_tables[slot] = SCRAP_PAGE
        self.set_pages(slot, pages)
        for recurrent, convolution in self._state_rows(slot):
            recurrent.zero_()
            convolution.zero_()

    def set_pages(self, slot: int, pages: Sequence[int]) -> None:
        """Tell all pages of a slot's sequence, in order: those that it had, and more."""
        self._page_tables[slot, : len(pages)] = torch.tensor(pages, device=self._device)
        self._first_pages[slot] = pages[0]
        self._straight[slot] = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(pages, count(pages[0])))
        )

    def save_snapshot(self, slot: int, snapshot: int) -> None:
        """Keep a slot's recurrent state as it is without its newest VERIFY window, see `settled_length`."""
        self.kept.save(snapshot, self.settled_length(slot), self._state_rows(slot))

    def restore_snapshot(self, slot: int, snapshot: int, length: int) -> None:
        """Begin a slot that was just opened with a kept state; its first pages hold the keys and values.

        Raises:
            ValueError: the snapshot is of another length.
        """
        self.kept.restore(snapshot, length, self._state_rows(slot))
        self._lengths[slot] = length

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values of a page, in every layer and in the head."""
        for state in (*self._trunk, *self.head_caches):
            if isinstance(state, KeyValueCache):
                state.keys[target] = state.keys[source]
                state.values[target] = state.values[source]

    def settled_length(self, slot: int) -> int:
        """Rows that a slot's recurrent state has taken in: the rows of the newest VERIFY window are in the
        stash until the next one."""
        return self._lengths[slot] - self._pending[slot]

    def _state_rows(self, slot: int) -> list[tuple[Tensor, Tensor]]:
        return [
            (state.recurrent[slot], state.convolution[slot])
            for state in self._trunk
            if isinstance(state, RecurrentState)
        ]

    def length(self, slot: int) -> int:
        """Committed rows of a slot."""
        return self._lengths[slot]

    def begin(self, slots: Sequence[int], row_counts: Sequence[int], kind: WindowKind) -> Transaction:
        """Open a window of `max(row_counts)` rows over some slots.

        Raises:
            ValueError: a window is open already, a sequence has no row, or a VERIFY window is larger than the
                stash can roll back.
        """
        if self._open is not None:
            raise ValueError("a window is open already; commit it first")
        rows = max(row_counts)
        if min(row_counts) < 1:
            raise ValueError("every sequence of a window needs at least one row")
        if kind is WindowKind.VERIFY and rows > self.sizes.window_rows:
            raise ValueError(
                f"a window of {rows} rows cannot be rolled back; this store keeps {self.sizes.window_rows}"
            )
        window = Window(
            rows=WindowRows(
                slots=_slot_index(tuple(slots), self._device),
                slot_range=_consecutive(slots),
                pending=tuple(self._pending[slot] for slot in slots),
                row_counts=tuple(row_counts),
                valid=self._valid_rows(row_counts, rows),
                commits_all=kind is WindowKind.EXTEND,
            ),
            attention=self.attention_rows(slots, [self._lengths[slot] for slot in slots], row_counts),
            trunk=self._trunk,
        )
        self._open = Transaction(self, tuple(slots), tuple(row_counts), kind, window)
        return self._open

    def attention_rows(
        self, slots: Sequence[int], starts: Sequence[int], row_counts: Sequence[int]
    ) -> AttentionRows:
        """Positions and page locations of rows that begin at `starts`; the drafter's chain uses it too."""
        slot_range = _consecutive(slots)
        table = self._page_tables[
            slot_range if slot_range is not None else _slot_index(tuple(slots), self._device)
        ]
        rows, page_size = max(row_counts), self.sizes.page_size
        origins = tuple(
            self._first_pages[slot] * page_size if start + rows <= self._straight[slot] * page_size else None
            for slot, start in zip(slots, starts, strict=True)
        )
        return AttentionRows(table, page_size, tuple(starts), tuple(row_counts), origins)

    def pending_rows(self, slot: int) -> WindowRows:
        """Geometry that reads one slot's committed state and what is pending on it, without any new row."""
        return WindowRows(
            torch.tensor([slot]), slice(slot, slot + 1), (self._pending[slot],), (0,), None, False
        )

    def committed_pages(self, cache: KeyValueCache, slot: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a slot's committed positions, [positions, heads, head_dim], as copies."""
        length = self._lengths[slot]
        pages = self._page_tables[slot, : -(-length // self.sizes.page_size)]
        return cache.keys[pages].flatten(0, 1)[:length], cache.values[pages].flatten(0, 1)[:length]

    @property
    def trunk(self) -> tuple[LayerState, ...]:
        """State pools of the trunk's layers, in order."""
        return self._trunk

    def _valid_rows(self, row_counts: Sequence[int], rows: int) -> Tensor | None:
        if min(row_counts) == rows:
            return None
        return torch.arange(rows, device=self._device) < torch.tensor(
            row_counts, device=self._device
        ).unsqueeze(1)

    def abandon(self, pages: Sequence[int]) -> None:
        """Close the open window, if any, after a fault, and clear pages that nobody uses any more.

        They may hold NaN, and a masked score is multiplied by whatever lies in a page.
        """
        self._open = None
        if not pages:
            return
        index = torch.tensor(pages, device=self._device)
        for state in (*self._trunk, *self.head_caches):
            if isinstance(state, KeyValueCache):
                state.keys[index] = 0
                state.values[index] = 0

    def _finish(self, transaction: Transaction, counts: Sequence[int]) -> None:
        self._open = None
        for slot, kept in zip(transaction.slots, counts, strict=True):
            self._lengths[slot] += kept
            self._pending[slot] = kept if transaction.kind is WindowKind.VERIFY else 0


class Transaction:
    """One open window. Exactly one `commit` closes it."""

    def __init__(
        self,
        store: StateStore,
        slots: tuple[int, ...],
        row_counts: tuple[int, ...],
        kind: WindowKind,
        window: Window,
    ) -> None:
        self._store = store
        self.slots = slots
        self.row_counts = row_counts
        self.kind = kind
        self.window = window

    def commit(self, counts: Sequence[int]) -> None:
        """Keep the first `counts[i]` rows of each sequence; the others never happened.

        Raises:
            ValueError: the window is not open, a count is outside 1 to the sequence's rows, or an EXTEND
                window is committed in part.
        """
        if self._store._open is not self:
            raise ValueError("this window is not open")
        for kept, rows in zip(counts, self.row_counts, strict=True):
            if not 1 <= kept <= rows or (self.kind is WindowKind.EXTEND and kept != rows):
                raise ValueError(
                    f"cannot commit {kept} of {rows} rows of a window that will {self.kind.value}"
                )
        self._store._finish(self, counts)


@lru_cache(maxsize=256)
def _slot_index(slots: tuple[int, ...], device: torch.device) -> Tensor:
    """[batch] int64; the same few slots come in every step."""
    return torch.tensor(slots, device=device)


def _consecutive(slots: Sequence[int]) -> slice | None:
    first = slots[0]
    return slice(first, first + len(slots)) if list(slots) == list(range(first, first + len(slots))) else None


def _allocate(spec: ModelSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device) -> LayerPools:
    trunk = tuple(_layer_state(layer.mixer, sizes, dtype, device) for layer in spec.layers)
    head = spec.mtp
    head_states = [
        _layer_state(head.layer.mixer, sizes, dtype, device)
        for _ in range(head.num_layers if head else 0)
        if head
    ]
    return LayerPools(trunk, tuple(state for state in head_states if isinstance(state, KeyValueCache)))


def _layer_state(
    mixer: AttentionSpec | GatedDeltaNetSpec, sizes: StateSizes, dtype: torch.dtype, device: torch.device
) -> LayerState:
    if isinstance(mixer, AttentionSpec):
        shape = (sizes.pages, sizes.page_size, mixer.num_key_value_heads, mixer.head_dim)
        # Zeros, not empty: a masked score is multiplied by whatever lies in the page.
        return KeyValueCache(
            torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device)
        )
    heads = (sizes.slots, mixer.num_value_heads)
    stash = (sizes.slots, sizes.window_rows)

    def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=kind, device=device)

    return RecurrentState(
        recurrent=zeros(*heads, mixer.key_head_dim, mixer.value_head_dim),
        convolution=zeros(sizes.slots, mixer.conv_kernel - 1, mixer.conv_dim, kind=dtype),
        stash_inputs=zeros(*stash, mixer.conv_dim, kind=dtype),
        stash_log_decay=zeros(*stash, mixer.num_value_heads),
        stash_beta=zeros(*stash, mixer.num_value_heads),
    )
