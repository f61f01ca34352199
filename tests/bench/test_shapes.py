"""Shipped shapes and layouts weigh what the releases weigh."""

from __future__ import annotations

import math

import pytest

from draftproof.bench.precisions import LAYOUTS, PrecisionLayout, layout_named
from draftproof.bench.shapes import SHAPES, first_layers, load_shape
from draftproof.errors import UsageError
from draftproof.hardware.shape import shape_of
from draftproof.hardware.traffic import Workload, step_traffic
from draftproof.hardware.weights import weigh_precisions
from draftproof.models.synthetic import synthetic_tensors, total_bytes


@pytest.mark.parametrize(
    ("shape", "layout", "gigabytes"),
    [
        ("qwen3.5-35b-a3b", "bf16", 6.04),
        ("qwen3.5-35b-a3b", "nvfp4", 4.41),
        ("qwen3.5-35b-a3b", "nvfp4-3.6", 2.40),
        ("qwen3.5-35b-a3b", "nvfp4-routed", 4.59),
        ("qwen3.5-122b-a10b", "nvfp4", 12.5),
        ("qwen3.5-397b-a17b", "nvfp4", 21.1),
        ("qwen3.5-27b", "nvfp4", 27.0),
        ("qwen3.5-27b", "nvfp4-3.6", 18.0),
    ],
)
def test_one_plain_step_reads_what_was_counted_by_hand(shape: str, layout: str, gigabytes: float) -> None:
    spec = load_shape(shape)
    weights = weigh_precisions(spec, layout_named(layout).groups)
    assert step_traffic(weights, shape_of(spec), Workload()).total / 1e9 == pytest.approx(
        gigabytes, rel=0.005
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("shape", SHAPES)
def test_fabricated_tensors_weigh_what_the_roofline_counts(shape: str, layout: PrecisionLayout) -> None:
    spec = first_layers(load_shape(shape), 4)
    entries = synthetic_tensors(spec, layout.expert_layouts(spec), layout.storage_of)
    counted = weigh_precisions(spec, layout.groups).nbytes
    assert math.isclose(total_bytes(entries.values()), counted, rel_tol=1e-3)


def test_shapes_are_text_only_and_have_a_head() -> None:
    for shape in SHAPES:
        spec = load_shape(shape)
        assert spec.vision is None
        assert spec.mtp is not None


def test_a_slice_keeps_the_first_layers() -> None:
    spec = load_shape("qwen3.5-397b-a17b")
    assert first_layers(spec, 8).layers == spec.layers[:8]
    with pytest.raises(UsageError, match="1 to 60"):
        first_layers(spec, 61)
