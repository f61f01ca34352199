"""What tensor parallelism must divide."""

import pytest

from draftproof.hardware.parallel import divisions, possible_ranks
from tests.hardware.models import release_as_declared, release_in

NVFP4_397B = "nvidia_Qwen3.5-397B-A17B-NVFP4"


def broken(model, ranks):
    return {each.check for each in divisions(model.shape, model.weights, ranks) if not each.holds}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_powers_of_two_divide_the_397b_release(ranks):
    assert broken(release_as_declared(NVFP4_397B), ranks) == set()


def test_three_ranks_divide_nothing():
    found = broken(release_as_declared(NVFP4_397B), 3)
    assert {
        "attention-heads-divide",
        "key-value-heads-divide",
        "recurrent-key-heads-divide",
        "recurrent-value-heads-divide",
        "routed-experts-divide",
        "vocabulary-divides",
    } <= found


def test_key_value_heads_repeat_when_there_are_fewer():
    model = release_as_declared(NVFP4_397B)
    item = next(d for d in divisions(model.shape, model.weights, 8) if d.check == "key-value-heads-divide")
    assert item.holds
    assert item.observed == "2 heads, each repeated on 4 ranks"


def test_shards_of_fp8_blocks_must_be_whole():
    """35B in block FP8: experts of 512 in blocks of 128 divide over 4 ranks and not over 8."""
    model = release_as_declared("Qwen_Qwen3.6-35B-A3B-FP8")
    assert broken(model, 4) == set()
    assert broken(model, 8) == {
        "routed-experts-divide",
        "shared-experts-divide",
        "head-routed-experts-divide",
        "head-shared-experts-divide",
    }
    item = next(d for d in divisions(model.shape, model.weights, 8) if d.check == "routed-experts-divide")
    assert "0.5 blocks of 128" in item.observed
    assert possible_ranks(model.shape, model.weights) == (1, 2, 4)


def test_groups_of_nvfp4_are_smaller():
    assert broken(release_in("35B", "NVFP4-V1"), 8) == set()


def test_a_dense_model_divides_its_mlp():
    model = release_in("27B", "BF16")
    assert broken(model, 2) == set()
    assert broken(model, 16) == {"attention-heads-divide"}
    assert "attention-heads-divide" in broken(model, 5)


def test_every_claim_says_what_was_expected_and_seen():
    model = release_as_declared(NVFP4_397B)
    for ranks in (1, 3, 8):
        for each in divisions(model.shape, model.weights, ranks):
            assert each.claim.endswith(".")
            assert each.expected
            assert each.observed
            assert each.field
