"""Bytes of one step, against the arithmetic of the design notes (GB, batch 1, context 1,024)."""

from dataclasses import replace

import pytest

from draftproof.hardware.traffic import Workload, distinct_experts, step_traffic
from tests.hardware.models import release_in, release_shape


@pytest.mark.parametrize(
    ("experts", "per_token", "rows", "met"),
    [
        (512, 10, 1, 10),
        (512, 10, 2, 19.8),
        (512, 10, 4, 38.8),
        (512, 10, 64, 367),
        (256, 8, 1, 8),
        (256, 8, 4, 30.5),
        (256, 8, 16, 102),
        (256, 8, 64, 222),
    ],
)
def test_experts_that_rows_meet(experts, per_token, rows, met):
    assert distinct_experts(experts, per_token, rows) == pytest.approx(met, abs=0.5 if met > 100 else 0.06)


@pytest.mark.parametrize(
    ("name", "precision", "by_rows"),
    [
        ("397B", "BF16", (33.1, 47.9, 62.4, 76.6, 90.6, 104)),
        ("397B", "FP8", (17.9, 25.3, 32.6, 39.7, 46.7, 53.5)),
        ("397B", "NVFP4-V1", (21.1, 25.3, 29.4, 33.4, 37.3, 41.2)),
        ("35B", "BF16", (6.04, 7.99, 9.88, 11.7, 13.5, 15.2)),
        ("35B", "FP8", (3.63, 4.60, 5.55, 6.46, 7.35, 8.21)),
        ("35B", "NVFP4-V1", (4.41, 4.96, 5.49, 6.00, 6.50, 6.99)),
        ("35B", "NVFP4-3.6", (2.40, 2.95, 3.48, 3.99, 4.49, 4.98)),
        ("122B", "NVFP4-V1", (12.5, 14.5, 16.4, 18.2, 20.0, 21.8)),
        ("27B", "BF16", (51.6,) * 6),
        ("27B", "NVFP4-3.6", (18.0,) * 6),
    ],
)
def test_gigabytes_of_a_verify_pass(name, precision, by_rows):
    model = release_in(name, precision)
    for drafts, expected in enumerate(by_rows):
        traffic = step_traffic(model.weights, model.shape, Workload(drafts))
        assert traffic.verify / 1e9 == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize(
    ("name", "precision", "rows", "gigabytes"),
    [
        ("397B", "NVFP4-V1", None, 2.59),
        ("397B", "NVFP4-V1", 32_768, 0.83),
        ("35B", "NVFP4-3.6", 32_768, 0.17),
    ],
)
def test_gigabytes_of_one_more_draft(name, precision, rows, gigabytes):
    """Beyond the first draft, whose pass covers the whole window, each costs one row and one output head."""
    model = release_in(name, precision)
    work = Workload(3, draft_rows=rows)
    three = step_traffic(model.weights, model.shape, work)
    # The same window, one draft fewer: the window's rows are the sequences' rows times K+1.
    two = step_traffic(model.weights, model.shape, replace(work, draft_tokens=2))
    share = distinct_experts(model.shape.experts.num_experts, model.shape.experts.experts_per_token, 4)
    share -= distinct_experts(model.shape.experts.num_experts, model.shape.experts.experts_per_token, 3)
    window = share * 3 * model.shape.hidden * model.shape.experts.intermediate_size * 2
    assert (three.draft - two.draft - window) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_plain_decoding_and_a_model_without_a_head_draft_nothing():
    model = release_in("35B", "BF16")
    assert step_traffic(model.weights, model.shape, Workload()).draft == 0
    headless = replace(model.shape, head_layers=0)
    assert step_traffic(model.weights, headless, Workload(3)).draft == 0


def test_the_state_is_read_and_written_once_for_each_sequence():
    model = release_in("397B", "BF16")
    items = {item.label: item.nbytes for item in step_traffic(model.weights, model.shape, Workload()).items}
    assert items["recurrent state"] == 2 * 45 * 64 * 128 * 128 * 4
    many = step_traffic(model.weights, model.shape, Workload(sequences=16))
    assert {item.label: item.nbytes for item in many.items}["recurrent state"] == 16 * items[
        "recurrent state"
    ]


def test_ranks_share_what_is_split_and_repeat_what_is_not():
    model = release_in("397B", "NVFP4-V1")
    one = step_traffic(model.weights, model.shape, Workload())
    eight = step_traffic(model.weights, model.shape, Workload(), ranks=8)
    assert one.total / 8 < eight.total < one.total / 6
    whole = {item.label: item.nbytes for item in one.items}
    part = {item.label: item.nbytes for item in eight.items}
    assert part["routed experts"] == pytest.approx(whole["routed experts"] / 8)
    assert part["routers"] == whole["routers"]
    assert part["keys and values"] == whole["keys and values"] / 2  # two heads, one on each rank


def test_a_tied_embedding_is_read_as_the_output_head():
    shape = release_shape("35B")
    model = release_in("35B", "BF16")
    tied = replace(model.weights, groups=tuple(g for g in model.weights.groups if g.group.value != "lm_head"))
    items = {item.label: item.nbytes for item in step_traffic(tied, shape, Workload()).items}
    assert items["output head"] == 248320 * 2048 * 2
