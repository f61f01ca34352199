"""Experts of a prompt's rows: the definition against a layer of plain matrices, kernels against it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import prompt, triton
from draftproof.kernels.experts_step.reference import experts_of_prompt
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.packed_weights.packing import pack_dense, pack_experts

EXPERTS, PER_TOKEN, HIDDEN, INTERMEDIATE, ROWS = 3, 2, 32, 16, 20
SPEC = MoeSpec(EXPERTS, PER_TOKEN, INTERMEDIATE, 0)


class Case:
    """Random experts, and rows that chose among them."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)

        def random(*shape: int) -> Tensor:
            return (torch.randn(*shape, generator=generator) * shape[-1] ** -0.5).bfloat16()

        first = (EXPERTS, INTERMEDIATE, HIDDEN)
        self.matrices = random(*first), random(*first), random(EXPERTS, HIDDEN, INTERMEDIATE)
        self.rows = torch.randn(ROWS, HIDDEN, generator=generator).bfloat16()
        shares = torch.rand(ROWS, EXPERTS, generator=generator)
        self.weights, self.chosen = shares.topk(PER_TOKEN)

    @property
    def packed(self) -> PackedExperts:
        return pack_experts(*(pack_dense(matrix) for matrix in self.matrices))


@pytest.fixture
def case() -> Case:
    return Case()


def test_the_definition_is_the_weighted_sum_of_gated_mlps(case: Case) -> None:
    rows = case.rows.float()
    found = experts_of_prompt(rows, case.chosen, case.weights, SPEC, case.packed)
    expected = torch.zeros_like(found)
    gate, up, down = (matrix.float() for matrix in case.matrices)
    for row in range(ROWS):
        for place, expert in enumerate(case.chosen[row].tolist()):
            hidden = F.silu(gate[expert] @ rows[row]) * (up[expert] @ rows[row])
            expected[row] += case.weights[row, place] * (down[expert] @ hidden)
    torch.testing.assert_close(found, expected)


def test_rows_beyond_one_call_are_done_in_parts(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "MOST_ROWS", 12)
    given = case.rows, case.chosen, case.weights, SPEC, case.packed
    assert triton.supports_experts_of_prompt(*given) is None
    actual, expected = triton.experts_of_prompt(*given).float(), experts_of_prompt(*given).float()
    # Both round activations and results to bfloat16.
    assert (actual - expected).norm() < 1e-2 * expected.norm()


def test_kernels_take_bfloat16_alone(case: Case) -> None:
    reason = triton.supports_experts_of_prompt(
        case.rows.float(), case.chosen, case.weights, SPEC, case.packed
    )
    assert reason == "rows in torch.float32"
