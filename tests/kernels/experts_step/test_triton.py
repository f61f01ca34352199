"""The experts' Triton kernels against the definition, in every format, for few and many rows."""

from __future__ import annotations

import pytest

from draftproof.kernels.experts_step import triton as portable
from tests.kernels.experts_step.cases import FORMATS, Shape, assert_same_sum, before_and_after

SHAPE = Shape(experts=3, per_token=2, hidden=144, intermediate=48)


@pytest.mark.parametrize("kind", FORMATS)
def test_few_rows(kind: str) -> None:
    assert_same_sum(*before_and_after(portable.experts_step, SHAPE, (kind, None), 2))


@pytest.mark.parametrize("kind", FORMATS)
def test_many_rows_with_more_pairs_than_a_block(kind: str) -> None:
    assert_same_sum(*before_and_after(portable.experts_step, SHAPE, (kind, None), 26))


def test_the_shared_expert_may_have_another_format() -> None:
    assert_same_sum(*before_and_after(portable.experts_step, SHAPE, ("nvfp4", "bf16"), 2))


def test_the_shared_expert_of_many_rows() -> None:
    assert_same_sum(*before_and_after(portable.experts_step, SHAPE, ("bf16", "bf16"), 9))
