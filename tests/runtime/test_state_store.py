"""The state store: state moves by transaction only, and rows of a window land where the page tables say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    GatedDeltaNetSpec,
    LayerSpec,
    ModelSpec,
    MtpSpec,
    RotarySpec,
)
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.layers.window import KeyValueCache
from draftproof.runtime.pages import SCRAP_PAGE
from draftproof.runtime.state_store import StateSizes, StateStore, WindowKind, state_bytes

ATTENTION = AttentionSpec(num_heads=6, num_key_value_heads=2, head_dim=4, gated=True)
RECURRENT = GatedDeltaNetSpec(
    num_key_heads=2, num_value_heads=4, key_head_dim=3, value_head_dim=5, conv_kernel=4
)
LAYERS = tuple(LayerSpec(mixer, DenseMlpSpec(8)) for mixer in (RECURRENT, RECURRENT, ATTENTION))
SPEC = ModelSpec(
    family="qwen3_5",
    architecture="Qwen3_5ForCausalLM",
    model_type="qwen3_5_text",
    hidden_size=16,
    vocab_size=32,
    layers=LAYERS,
    mtp=MtpSpec(1, LAYERS[2], "mtp_num_hidden_layers"),
    vision=None,
    rotary=RotarySpec(1e4, 4),
    rms_norm_eps=1e-6,
    max_position=64,
    tie_word_embeddings=False,
    text_prefix="model.",
)
SIZES = StateSizes(slots=4, pages=20, page_size=4, max_positions=24, window_rows=3)
CPU = torch.device("cpu")


@pytest.fixture
def store() -> StateStore:
    store = StateStore(SPEC, SIZES, torch.float32, CPU)
    store.open_slot(0, [5, 2, 9])
    store.open_slot(1, [1, 3, 4])
    store.open_slot(3, [6, 7, 8])
    return store


def advance(store: StateStore, slot: int, rows: int) -> None:
    store.begin([slot], [rows], WindowKind.EXTEND).commit([rows])


def test_memory_is_one_state_a_slot_and_a_stash_of_one_window(store: StateStore) -> None:
    recurrent = store.trunk[0]
    assert isinstance(recurrent, RecurrentState)
    assert recurrent.recurrent.shape == (4, 4, 3, 5)
    assert recurrent.convolution.shape == (4, 3, 32)
    assert recurrent.stash_inputs.shape == (4, 3, 32)
    assert recurrent.stash_log_decay.shape == recurrent.stash_beta.shape == (4, 3, 4)
    cache = store.trunk[2]
    assert isinstance(cache, KeyValueCache)
    assert cache.keys.shape == cache.values.shape == (20, 4, 2, 4)
    assert [head.keys.shape for head in store.head_caches] == [(20, 4, 2, 4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_store_takes_is_known_before_it_is_made(dtype: torch.dtype) -> None:
    store = StateStore(SPEC, replace(SIZES, snapshots=5), dtype, CPU)
    element = dtype.itemsize
    keys_and_values = 2 * 2 * 20 * 4 * 2 * 4 * element  # of one trunk layer and of the head
    slot = 4 * 3 * 5 * 4 + 3 * 32 * element
    stash = 3 * (32 * element + 4 * 4 + 4 * 4)
    page_tables = 4 * 6 * 8
    recurrent_layers = 2 * (4 * (slot + stash) + 5 * slot)
    assert len(store.trunk) == 3
    expected = keys_and_values + recurrent_layers + page_tables
    assert state_bytes(SPEC, store.sizes, dtype) == expected


def test_the_recurrent_state_is_float32_whatever_the_rest_is() -> None:
    store = StateStore(SPEC, SIZES, torch.bfloat16, CPU)
    recurrent, cache = store.trunk[0], store.trunk[2]
    assert isinstance(recurrent, RecurrentState)
    assert isinstance(cache, KeyValueCache)
    assert recurrent.recurrent.dtype == recurrent.stash_log_decay.dtype == torch.float32
    assert recurrent.convolution.dtype == recurrent.stash_inputs.dtype == cache.keys.dtype == torch.bfloat16


def test_lengths_move_by_what_is_committed(store: StateStore) -> None:
    advance(store, 0, 6)
    assert (store.length(0), store.length(1)) == (6, 0)
    store.begin([0, 1], [3, 1], WindowKind.VERIFY).commit([2, 1])
    assert (store.length(0), store.length(1)) == (8, 1)


def test_accepted_rows_of_a_judged_window_are_pending_in_the_next_one(store: StateStore) -> None:
    advance(store, 0, 6)
    store.begin([0, 1], [3, 2], WindowKind.VERIFY).commit([3, 1])
    window = store.begin([1, 0], [1, 1], WindowKind.EXTEND)
    assert window.window.rows.pending == (1, 3)
    window.commit([1, 1])
    assert store.begin([0, 1], [2, 2], WindowKind.VERIFY).window.rows.pending == (0, 0)


def test_rows_go_to_the_pages_of_their_positions_and_padding_to_the_scrap_page(store: StateStore) -> None:
    advance(store, 0, 3)
    advance(store, 3, 8)
    rows = store.begin([0, 3], [3, 1], WindowKind.VERIFY).window.attention
    assert rows.starts == (3, 8)
    assert rows.positions.tolist() == [[3, 4, 5], [8, 9, 10]]
    scrap = SCRAP_PAGE * 4
    # positions 3, 4, 5 of slot 0 lie in pages 5, 2, 2; position 8 of slot 3 in page 8
    assert rows.locations.tolist() == [5 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 8 * 4 + 0, scrap, scrap]
    assert rows.page_table.tolist() == [[5, 2, 9, 0, 0, 0], [6, 7, 8, 0, 0, 0]]


def test_an_origin_stands_for_pages_that_follow_each_other(store: StateStore) -> None:
    """Slot 0 has pages 5, 2, 9; slot 1 has 1, 3, 4; slot 3 has 6, 7, 8, of 4 positions each."""
    rows = store.attention_rows([0, 1, 3], [0, 0, 8], [4, 4, 4])
    assert rows.origins == (20, 4, 24)
    assert store.attention_rows([0, 1, 3], [0, 1, 8], [1, 4, 4]).origins == (20, None, 24)
    single = store.attention_rows([3], [5], [3])
    assert single.only_origin == 24
    assert single.locations.tolist() == [24 + 5, 24 + 6, 24 + 7]
    assert store.attention_rows([0], [3], [2]).only_origin is None


def test_the_last_real_rows_are_a_window_of_their_own(store: StateStore) -> None:
    rows = store.attention_rows([1, 3], [0, 7], [3, 1])
    assert (rows.last.starts, rows.last.row_counts) == ((2, 7), (1, 1))
    assert rows.last.positions.tolist() == [[2], [7]]
    assert rows.pick_last(torch.tensor([[10, 11, 12], [20, 21, 22]])).tolist() == [[12], [20]]


def test_padding_is_marked_and_a_full_window_is_not(store: StateStore) -> None:
    ragged = store.begin([0, 1], [3, 1], WindowKind.VERIFY)
    assert ragged.window.rows.valid is not None
    assert ragged.window.rows.valid.tolist() == [[True, True, True], [True, False, False]]
    ragged.commit([1, 1])
    assert store.begin([0, 1], [2, 2], WindowKind.VERIFY).window.rows.valid is None


@pytest.mark.parametrize(
    ("slots", "expected"), [([0, 1], slice(0, 2)), ([1, 0], None), ([0, 3], None), ([3], slice(3, 4))]
)
def test_consecutive_slots_are_a_slice(store: StateStore, slots: list[int], expected: slice | None) -> None:
    window = store.begin(slots, [1] * len(slots), WindowKind.EXTEND).window
    assert window.rows.slot_range == expected
    assert window.rows.slots.tolist() == slots


def test_only_one_window_is_open_at_a_time(store: StateStore) -> None:
    window = store.begin([0], [1], WindowKind.EXTEND)
    with pytest.raises(ValueError, match="open already"):
        store.begin([1], [1], WindowKind.EXTEND)
    window.commit([1])
    with pytest.raises(ValueError, match="not open"):
        window.commit([1])
    assert store.length(0) == 1


def test_a_window_too_large_to_roll_back_is_refused_but_certain_rows_are_not(store: StateStore) -> None:
    with pytest.raises(ValueError, match="4 rows cannot be rolled back; this store keeps 3"):
        store.begin([0], [4], WindowKind.VERIFY)
    store.begin([0], [9], WindowKind.EXTEND).commit([9])


def test_every_sequence_has_a_row(store: StateStore) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        store.begin([0, 1], [2, 0], WindowKind.VERIFY)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        (WindowKind.VERIFY, [0, 1]),
        (WindowKind.VERIFY, [4, 1]),
        (WindowKind.VERIFY, [3, 2]),
        (WindowKind.VERIFY, [-1, 1]),
        (WindowKind.EXTEND, [2, 1]),
        (WindowKind.EXTEND, [0, 1]),
    ],
)
def test_a_commit_that_cannot_be_is_refused_and_moves_nothing(
    store: StateStore, kind: WindowKind, counts: list[int]
) -> None:
    window = store.begin([0, 1], [3, 1], kind)
    with pytest.raises(ValueError, match="cannot commit"):
        window.commit(counts)
    assert (store.length(0), store.length(1)) == (0, 0)
    window.commit([3, 1])


def test_a_slot_opened_again_starts_from_nothing(store: StateStore) -> None:
    advance(store, 0, 6)
    store.begin([0], [2], WindowKind.VERIFY).commit([2])
    for state in store.trunk:
        if isinstance(state, RecurrentState):
            for pool in vars(state).values():
                pool.fill_(9.0)
    store.open_slot(0, [4, 2])
    assert store.length(0) == 0
    window = store.begin([0], [1], WindowKind.VERIFY).window
    assert window.rows.pending == (0,)
    assert window.attention.page_table.tolist() == [[4, 2, 0, 0, 0, 0]]
    for state in store.trunk:
        if isinstance(state, RecurrentState):
            assert not state.recurrent[0].any()
            assert not state.convolution[0].any()
            assert (state.recurrent[1:] == 9.0).all()
            assert (state.convolution[1:] == 9.0).all()


def test_committed_pages_are_a_copy_in_order_of_position(store: StateStore) -> None:
    cache = store.trunk[2]
    assert isinstance(cache, KeyValueCache)
    advance(store, 0, 6)
    for position in range(6):
        page = [5, 2][position // 4]
        cache.keys[page, position % 4] = position
        cache.values[page, position % 4] = -position
    keys, values = store.committed_pages(cache, 0)
    assert keys[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert values[:, 0, 0].tolist() == [0, -1, -2, -3, -4, -5]
    keys.fill_(50.0)
    assert cache.keys[5, 1, 0, 0] == 1


def test_pages_may_be_added_while_a_sequence_runs(store: StateStore) -> None:
    advance(store, 0, 6)
    store.set_pages(0, [5, 2, 9, 10])
    window = store.begin([0], [1], WindowKind.VERIFY).window
    assert window.attention.page_table.tolist() == [[5, 2, 9, 10, 0, 0]]
    assert window.attention.starts == (6,)


@pytest.fixture
def keeping() -> StateStore:
    """Two snapshots; slot 0 holds ones, slot 1 twos."""
    store = StateStore(SPEC, replace(SIZES, snapshots=2), torch.float32, CPU)
    store.open_slot(0, [5, 2, 9])
    store.open_slot(1, [1, 3, 4])
    for state in recurrent_states(store):
        for slot in (0, 1):
            state.recurrent[slot] = slot + 1
            state.convolution[slot] = -slot - 1
    return store


def recurrent_states(store: StateStore) -> list[RecurrentState]:
    return [state for state in store.trunk if isinstance(state, RecurrentState)]


def test_a_slot_begins_with_a_kept_state(keeping: StateStore) -> None:
    advance(keeping, 1, 7)
    keeping.save_snapshot(1, 0)
    keeping.open_slot(0, [5, 2, 9])
    keeping.restore_snapshot(0, 0, 7)
    assert (keeping.length(0), keeping.settled_length(0)) == (7, 7)
    for state in recurrent_states(keeping):
        assert (state.recurrent[0] == 2).all()
        assert (state.convolution[0] == -2).all()
    window = keeping.begin([0], [1], WindowKind.EXTEND).window
    assert (window.attention.starts, window.rows.pending) == ((7,), (0,))


def test_a_snapshot_is_of_the_length_before_the_newest_window(keeping: StateStore) -> None:
    """Its rows are in the stash."""
    advance(keeping, 0, 5)
    keeping.begin([0], [3], WindowKind.VERIFY).commit([2])
    assert (keeping.length(0), keeping.settled_length(0)) == (7, 5)
    keeping.save_snapshot(0, 1)
    with pytest.raises(ValueError, match="snapshot 1 holds the state after 5 tokens, not 7"):
        keeping.restore_snapshot(1, 1, 7)
    keeping.restore_snapshot(1, 1, 5)


def test_a_copied_page_holds_the_keys_and_values_of_all_layers(store: StateStore) -> None:
    caches = [state for state in (*store.trunk, *store.head_caches) if isinstance(state, KeyValueCache)]
    assert len(caches) == 2
    for number, cache in enumerate(caches):
        cache.keys[5], cache.values[5] = number + 1, -number - 1
    store.copy_page(5, 9)
    for number, cache in enumerate(caches):
        assert (cache.keys[9] == number + 1).all()
        assert (cache.values[9] == -number - 1).all()


def test_an_abandoned_window_is_closed_and_the_pages_are_cleared(store: StateStore) -> None:
    cache = store.trunk[2]
    assert isinstance(cache, KeyValueCache)
    store.begin([0], [2], WindowKind.VERIFY)
    cache.keys.fill_(torch.nan)
    store.abandon([5, 9])
    assert not cache.keys[[5, 9]].any()
    assert cache.keys[2].isnan().all()
    store.begin([1], [1], WindowKind.EXTEND).commit([1])
    store.abandon([])
