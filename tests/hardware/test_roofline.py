"""Predicted speeds: the bound against the design notes, the expectation against public measurements."""

from dataclasses import replace

import pytest

from draftproof.hardware.gpu import Figure
from draftproof.hardware.gpu_choice import find_gpu
from draftproof.hardware.roofline import Deployment, expected_accept_length, roofline, speed
from draftproof.hardware.traffic import Workload
from tests.hardware.models import release_in

H200_COPY = replace(find_gpu("h200"), measured_bandwidth=Figure(4.3e12, "copying, as the notes assume"))
"""The notes' tables divide by 4.3 TB/s."""


@pytest.mark.parametrize(
    ("name", "precision", "plain", "at_two", "at_three", "trimmed"),
    [
        ("35B", "BF16", 712, 562, 843, 1020),
        ("35B", "FP8", 1186, 856, 1284, 1744),
        ("35B", "NVFP4-V1", 975, 897, 1345, 1858),
        ("35B", "NVFP4-3.6", 1792, 1596, 2395, 2779),
        ("122B", "NVFP4-V1", 345, 354, 530, 634),
        ("122B", "FP8", 424, 325, 487, 574),
        ("27B", "BF16", 83, 139, 209, 234),
        ("27B", "NVFP4-V1", 159, 231, 347, 422),
        ("27B", "NVFP4-3.6", 239, 379, 569, 620),
    ],
)
def test_ideal_speeds_on_one_h200(name, precision, plain, at_two, at_three, trimmed):
    """K = 3, batch 1; trimmed: accept length 3 with a draft head of 32,768 rows."""
    model, place = release_in(name, precision), Deployment(H200_COPY)
    line = roofline(model, place)
    assert line.plain_speed.ideal == pytest.approx(plain, rel=0.004, abs=1)
    nextn = line.with_drafts(3)
    assert nextn.at(2.0).ideal == pytest.approx(at_two, rel=0.002, abs=1)
    assert nextn.at(3.0).ideal == pytest.approx(at_three, rel=0.002, abs=1)
    short = roofline(model, place, Workload(draft_rows=32_768)).with_drafts(3)
    assert short.at(3.0).ideal == pytest.approx(trimmed, rel=0.002, abs=1)


def test_the_measured_reading_raises_the_same_bound():
    """4.58 TB/s was read, the notes' tables copy at 4.3."""
    copied = roofline(release_in("35B", "BF16"), Deployment(H200_COPY)).plain_speed.ideal
    read = roofline(release_in("35B", "BF16"), Deployment(find_gpu("h200"))).plain_speed.ideal
    assert read / copied == pytest.approx(4.58 / 4.3)


@pytest.mark.parametrize(
    ("name", "precision", "gpu", "ranks", "milliseconds"),
    [
        ("35B", "BF16", "h200", 1, 4.16),
        ("35B", "FP8", "h200", 1, 3.60),
        ("35B", "BF16", "b200", 1, 3.00),
        ("27B", "BF16", "h200", 1, 14.87),
        ("27B", "FP8", "h200", 1, 10.25),
        ("27B", "BF16", "b200", 1, 10.45),
        ("122B", "BF16", "h200", 4, 4.73),
        ("122B", "FP8", "h200", 2, 4.97),
        ("397B", "BF16", "h200", 8, 5.78),
        ("397B", "FP8", "h200", 8, 6.44),
        ("397B", "NVFP4-V1", "b200", 4, 4.67),
    ],
)
def test_an_ordinary_stack_is_as_fast_as_public_benchmarks_say(name, precision, gpu, ranks, milliseconds):
    """Plain decoding, one request, 8k context: medians of SGLang's own benchmark pages."""
    line = roofline(release_in(name, precision), Deployment(find_gpu(gpu), ranks), Workload(context=8192))
    assert line.plain.ordinary * 1e3 == pytest.approx(milliseconds, rel=0.2)


@pytest.mark.parametrize(("precision", "milliseconds"), [("BF16", 7.15), ("NVFP4-V1", 6.13)])
def test_an_ordinary_step_with_drafts(precision, milliseconds):
    """vLLM 0.33, 35B on one H200, three drafts, accept length pinned at 3."""
    line = roofline(release_in("35B", precision), Deployment(find_gpu("h200")))
    assert line.with_drafts(3).time.ordinary * 1e3 == pytest.approx(milliseconds, rel=0.25)


def test_all_reduces_are_counted_and_cost_more_over_pcie():
    model = release_in("397B", "NVFP4-V1")
    fast = roofline(model, Deployment(find_gpu("h200"), 2))
    assert fast.plain.all_reduces == 120
    assert fast.with_drafts(3).time.all_reduces == 126
    assert fast.plain.waiting == pytest.approx(120 * 6.5e-6)
    slow = roofline(model, Deployment(find_gpu("rtx-pro-6000"), 8))
    assert slow.plain.waiting > 4 * fast.plain.waiting
    assert roofline(model, Deployment(find_gpu("b300"))).plain.all_reduces == 0


def test_accept_lengths_beyond_the_window_are_not_predicted():
    line = roofline(release_in("35B", "BF16"), Deployment(find_gpu("h200")))
    assert [prediction.draft_tokens for prediction in line.nextn] == [1, 2, 3, 4, 5]
    for prediction in line.nextn:
        lengths = [length for length, _ in prediction.speeds]
        assert lengths[0] == 1.0
        assert max(lengths) <= prediction.draft_tokens + 1
        assert prediction.bound >= prediction.speeds[-1][1].ideal
        fast = [each.ideal for _, each in prediction.speeds]
        assert fast == sorted(fast)
    with pytest.raises(ValueError, match="yields a token"):
        speed(line.plain, 0.5)


def test_a_bound_is_above_an_expectation():
    for gpu in ("h200", "rtx-pro-6000", "b200"):
        line = roofline(release_in("122B", "NVFP4-V1"), Deployment(find_gpu(gpu), 4))
        found = line.plain_speed
        assert found.ideal > found.with_all_reduces > found.ordinary > 0


def test_a_model_without_a_head_is_predicted_plain():
    model = release_in("35B", "BF16")
    line = roofline(replace(model, shape=replace(model.shape, head_layers=0)), Deployment(find_gpu("h200")))
    assert line.nextn == ()
    assert line.with_drafts(3) is None


def test_accept_lengths_to_plan_with():
    assert expected_accept_length(3) == 3.39
    assert expected_accept_length(16) == expected_accept_length(8)
