"""A measured speed: what share it is, and what is suspected in which order."""

import pytest

from draftproof.hardware.gpu_choice import find_gpu
from draftproof.hardware.roofline import Deployment, roofline
from draftproof.hardware.suspects import FourBitUnits, compare_measured
from draftproof.hardware.traffic import Workload
from tests.hardware.models import release_as_declared, release_in

FOUNDING = release_as_declared("nvidia_Qwen3.5-397B-A17B-NVFP4")
EIGHT = Deployment(find_gpu("rtx-pro-6000"), 8)


def compared(measured, accept_length=None, model=FOUNDING, place=EIGHT, drafts=3, workload=None):
    return compare_measured(model, roofline(model, place, workload), measured, drafts, accept_length)


def names(share):
    return [suspect.name for suspect in share.suspects if suspect.fits]


def test_the_founding_story_72_tokens_a_second():
    """397B NVFP4 on eight RTX PRO 6000: an eighth of what plain decoding could reach at best."""
    share = compared(72)
    assert share.of_plain == pytest.approx(0.12, abs=0.01)
    assert share.of_nextn == pytest.approx(0.07, abs=0.01)
    assert share.possible
    assert not share.is_ordinary
    assert names(share)[0] == "the head drafts and nothing is accepted"
    assert {"the MTP head is not active", "CUDA graphs are off"} <= {s.name for s in share.suspects}


def test_an_ordinary_speed_is_explained_by_nothing():
    share = compared(300)
    assert share.is_ordinary
    assert share.suspects == ()


def test_the_speed_of_plain_decoding_points_at_an_inactive_head():
    line = roofline(FOUNDING, EIGHT)
    assert names(compared(line.plain_speed.ordinary))[0] == "the MTP head is not active"


def test_the_speed_of_a_useless_head_points_at_its_acceptance():
    line = roofline(FOUNDING, EIGHT)
    useless = line.with_drafts(3).at(1.0).ordinary
    assert names(compared(useless))[0] == "the head drafts and nothing is accepted"


def test_a_measured_accept_length_rules_acceptance_out():
    share = compared(72, accept_length=1.0)
    assert share.accept_length_given
    assert "few drafts are accepted" not in [suspect.name for suspect in share.suspects]


def test_two_causes_are_named_when_one_is_not_enough():
    share = compared(40)
    assert names(share)
    assert all(", and " in name for name in names(share))


def test_more_than_bandwidth_allows_is_impossible():
    assert not compared(10_000).possible
    assert compared(1200).possible


def test_what_cannot_be_the_cause_is_not_suspected():
    one_gpu = compared(20, model=release_in("35B", "BF16"), place=Deployment(find_gpu("h200")))
    text = " ".join(suspect.name for suspect in one_gpu.suspects)
    assert "all-reduces" not in text
    assert "4-bit" not in text
    assert "requests" not in text


def test_conversion_is_no_suspect_where_the_gpus_own_units_are_used():
    line = roofline(FOUNDING, EIGHT)

    def suspected(four_bits):
        share = compare_measured(FOUNDING, line, 200, 3, four_bits=four_bits)
        return any("4-bit" in suspect.name for suspect in share.suspects)

    assert suspected(FourBitUnits.UNKNOWN)
    assert suspected(FourBitUnits.CONVERTED)
    assert not suspected(FourBitUnits.USED)


def test_the_cap_of_running_requests_matters_only_to_many():
    many = compared(500, workload=Workload(sequences=64))
    assert any("48 requests" in suspect.name for suspect in many.suspects)


def test_plain_decoding_has_no_head_to_suspect():
    share = compared(40, drafts=0)
    assert share.of_nextn is None
    assert share.draft_tokens == 0
    assert not any("head" in suspect.name for suspect in share.suspects)


def test_every_suspect_says_how_to_see_it():
    for measured in (5, 40, 72, 110, 200):
        for suspect in compared(measured).suspects:
            assert suspect.check
            assert suspect.why
            assert 0 < suspect.slowest < suspect.fastest
            assert suspect.fits == (suspect.slowest <= measured <= suspect.fastest)


def test_suspects_that_fit_come_first():
    for measured in (40, 72, 110, 200):
        fits = [suspect.fits for suspect in compared(measured).suspects]
        assert fits == sorted(fits, reverse=True)
