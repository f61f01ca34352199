"""What fits: states by each stack's layout, keys and values, budget and shortfall."""

from dataclasses import replace

import pytest

from draftproof.hardware.gpu_choice import find_gpu
from draftproof.hardware.memory import budget_for, default_allowances, fit_table, smallest_ranks
from draftproof.hardware.sequence_cost import key_value_bytes, sequence_cost, state_copy_bytes
from draftproof.hardware.state_layout import StateLayout
from tests.hardware.models import release_as_declared, release_shape

MIB = 2**20
BIG = release_shape("397B")


def sglang(drafts=3):
    """Five slots for a request, and a state for each of K+1 draft positions."""
    return StateLayout(committed_copies=5, draft_copies=drafts + 1, state_bytes=4)


def vllm(drafts, committed, block):
    """1+K blocks, two more with the prefix cache; all padded to the KV block."""
    return StateLayout(committed, drafts, 4, block, extra_convolution_columns=drafts)


@pytest.mark.parametrize(("ranks", "mebibytes"), [(1, 183), (8, 22.9)])
def test_one_copy_of_the_state_of_the_397b_release(ranks, mebibytes):
    assert 45 * state_copy_bytes(BIG, ranks, 4) / MIB == pytest.approx(mebibytes, rel=0.002)


def test_sglangs_states_for_48_requests_on_eight_ranks():
    cost = sequence_cost(BIG, sglang(), 8)
    assert cost.state / MIB == pytest.approx(91.6 + 114.4, rel=0.002)
    assert 48 * cost.state / MIB == pytest.approx(9_900, rel=0.002)


@pytest.mark.parametrize(
    ("ranks", "block", "with_cache", "without"),
    [(1, 2176, 1148, 765), (4, 1088, 287, 191), (8, 576, 152, 101)],
)
def test_vllms_states_are_padded_to_its_blocks(ranks, block, with_cache, without):
    """K = 3; two blocks more with the prefix cache."""
    assert sequence_cost(BIG, vllm(3, 3, block), ranks).state / MIB == pytest.approx(with_cache, abs=0.6)
    assert sequence_cost(BIG, vllm(3, 1, block), ranks).state / MIB == pytest.approx(without, abs=0.6)


def test_vllms_states_without_speculation():
    assert sequence_cost(BIG, vllm(0, 3, 2112), 1).state / MIB == pytest.approx(557, abs=0.6)
    assert sequence_cost(BIG, vllm(0, 1, 2112), 1).state / MIB == pytest.approx(186, abs=0.6)


def test_replay_keeps_one_state_and_kilobytes():
    """One state and the inputs of four rows: 193 MB where others keep 756 MB and more."""
    cost = sequence_cost(BIG, StateLayout(1, 0, 4, kept_rows=4), 1)
    assert cost.state == 45 * (state_copy_bytes(BIG, 1, 4) + 4 * (12288 * 2 + 2 * 64 * 4))
    assert 190e6 < cost.state < 200e6


@pytest.mark.parametrize(("ranks", "heads"), [(1, 2), (2, 1), (8, 1)])
def test_key_value_heads_are_repeated_and_never_halved(ranks, heads):
    assert key_value_bytes(BIG, ranks, 2) == 2 * heads * 256 * 2


def test_key_value_bytes_of_a_token():
    """30.7 kB for the trunk's 15 layers, and the head's layer; half of it in FP8."""
    layout = StateLayout(1, 0, 4)
    assert sequence_cost(BIG, layout, 1, with_head=False).key_value_per_token == 30_720
    assert sequence_cost(BIG, layout, 1).key_value_per_token == 32_768
    assert sequence_cost(BIG, layout, 1, cache_bytes=1).key_value_per_token == 16_384


def budget(gpu="rtx-pro-6000", ranks=8, layout=None):
    model = release_as_declared("nvidia_Qwen3.5-397B-A17B-NVFP4")
    cost = sequence_cost(model.shape, layout or sglang(), ranks)
    return budget_for(find_gpu(gpu), ranks, model.weights, model.shape, cost)


def test_the_founding_checkpoint_fits_eight_rtx_pro_6000():
    found = budget()
    assert found.weights / 1e9 == pytest.approx(31.7, abs=0.1)
    assert found.shortfall(32_768, 48) == 0
    assert found.largest_concurrency(32_768) > 48
    assert found.largest_context(1) > 262_144


def test_two_h200_leave_what_the_notes_say():
    found = budget("h200", 2)
    assert found.weights / 1e9 == pytest.approx(126, abs=0.5)
    assert found.free / 1e9 == pytest.approx(20, abs=1.5)


def test_what_does_not_fit_is_a_number_of_bytes():
    found = budget(ranks=2)
    assert found.free < 0
    assert found.largest_context() == 0
    assert found.largest_concurrency(4096) == 0
    assert found.shortfall(4096, 1) == pytest.approx(-found.free + found.cost.total(4096))
    assert smallest_ranks(lambda ranks: budget(ranks=ranks), (1, 2, 4, 8), 32_768, 1) == 4
    assert smallest_ranks(lambda ranks: budget("rtx-5090", ranks), (1, 2, 4), 32_768, 1) is None


def test_largest_context_and_concurrency_are_exact():
    found = budget()
    for sequences in (1, 7, 48):
        context = found.largest_context(sequences)
        assert found.shortfall(context, sequences) == 0
        assert found.shortfall(context + 1, sequences) > 0
    for context in (1000, 32_768):
        most = found.largest_concurrency(context)
        assert found.shortfall(context, most) == 0
        assert found.shortfall(context, most + 1) > 0


def test_blocks_are_whole():
    found = budget(layout=vllm(3, 3, 576))
    context = found.largest_context(1)
    assert context % 576 == 0
    assert found.shortfall(context, 1) == 0
    assert found.shortfall(context + 1, 1) > 0


def test_the_table_of_what_fits():
    rows = fit_table(budget(ranks=4), 262_144)
    assert [row.context for row in rows] == [4_096, 32_768, 131_072, 262_144]
    for row in rows:
        assert row.fits == tuple(count <= row.most for count in (1, 4, 16, 48, 128))
    assert [row.context for row in fit_table(budget(), 8_192)] == [4_096]


def test_allowances_say_what_they_are_for():
    one, many = default_allowances(BIG, 1), default_allowances(BIG, 8)
    assert len(many) == len(one) + 1
    assert all(allowance.purpose and allowance.source for allowance in many)
    narrow = default_allowances(replace(BIG, hidden=2048), 1)
    assert sum(a.nbytes for a in narrow) < sum(a.nbytes for a in one)
