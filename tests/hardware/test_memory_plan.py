"""What does not fit is refused with the budget by group, before anything is allocated."""

from __future__ import annotations

import pytest

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape
from draftproof.errors import EnvironmentProblem
from draftproof.hardware.memory_plan import MemoryPlan, memory_plan
from draftproof.hardware.weights import weigh_precisions

H200 = 143_771 * 2**20


def plan_for(shape: str, layout: str, sequences: int = 1) -> MemoryPlan:
    spec = load_shape(shape)
    weights = weigh_precisions(spec, layout_named(layout).groups)
    return memory_plan(spec, weights, sequences, 1536, 4)


def test_the_397b_is_refused_on_one_gpu_and_its_largest_group_is_named() -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"397b.*weights: routed experts 217\.\d.*--layers"
    ) as caught:
        plan_for("qwen3.5-397b-a17b", "nvfp4").require(H200, "qwen3.5-397b-a17b in nvfp4", "Fewer --layers.")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("shape", "layout"),
    [("qwen3.5-35b-a3b", "bf16"), ("qwen3.5-122b-a10b", "nvfp4"), ("qwen3.5-27b", "bf16")],
)
def test_what_fits_is_not_refused(shape: str, layout: str) -> None:
    plan_for(shape, layout, sequences=64).require(H200, shape, "")


def test_more_sequences_need_more_state_and_the_same_weights() -> None:
    one, many = plan_for("qwen3.5-35b-a3b", "nvfp4"), plan_for("qwen3.5-35b-a3b", "nvfp4", 64)

    def of(plan: MemoryPlan, word: str) -> float:
        return sum(item.nbytes for item in plan.items if word in item.purpose)

    assert of(one, "weights") == of(many, "weights")
    # 63 MB of float32 state a sequence; both sides of the convolution's and of the window's inputs beside it.
    assert of(many, "recurrent") - of(one, "recurrent") == pytest.approx(63 * 69.9e6, rel=0.001)
