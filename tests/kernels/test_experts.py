"""Routed experts against a loop over rows and their chosen experts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftproof.kernels.experts import host, reference
from draftproof.kernels.experts.reference import ALL_ROWS_LIMIT, Experts
from draftproof.layers.linear import DenseLinear, Fp8ScaledLinear, Nvfp4Linear, ParallelLinear
from tools.quantization import decode_nvfp4, encode_fp8_channel, encode_nvfp4

Form = Callable[..., Tensor]
each_form = pytest.mark.parametrize(
    "routed_experts", [reference.routed_experts, host.routed_experts], ids=["reference", "host"]
)
EXPERTS, PER_TOKEN, HIDDEN, INNER = 7, 3, 32, 48


class Matrices:
    """Plain weights of one layer: gate, up [E, INNER, HIDDEN] and down [E, HIDDEN, INNER]."""

    def __init__(self, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.gate = torch.randn(EXPERTS, INNER, HIDDEN, generator=generator) * HIDDEN**-0.5
        # Gate and up get very different sizes, so that a scale shared by mistake shows.
        self.up = torch.randn(EXPERTS, INNER, HIDDEN, generator=generator) * HIDDEN**-0.5 * 20
        self.down = torch.randn(EXPERTS, HIDDEN, INNER, generator=generator) * INNER**-0.5

    def dense(self) -> Experts:
        return Experts(
            tuple(DenseLinear(torch.cat(pair)) for pair in zip(self.gate, self.up, strict=True)),
            tuple(DenseLinear(matrix) for matrix in self.down),
        )


def routing_of(rows: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, their distinct experts, and their weights."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, HIDDEN, generator=generator)
    chosen = torch.stack([torch.randperm(EXPERTS, generator=generator)[:PER_TOKEN] for _ in range(rows)])
    return hidden, chosen, torch.rand(rows, PER_TOKEN, generator=generator)


def row_by_row(hidden: Tensor, chosen: Tensor, routing: Tensor, weights: Matrices) -> Tensor:
    outputs = []
    for row, experts, shares in zip(hidden.double(), chosen.tolist(), routing.tolist(), strict=True):
        total = torch.zeros(HIDDEN, dtype=torch.float64)
        for expert, share in zip(experts, shares, strict=True):
            gate = weights.gate[expert].double() @ row
            activated = gate / (1 + torch.exp(-gate)) * (weights.up[expert].double() @ row)
            total += share * (weights.down[expert].double() @ activated)
        outputs.append(total)
    return torch.stack(outputs).float()


@each_form
@pytest.mark.parametrize("rows", [1, 2, 5, ALL_ROWS_LIMIT, ALL_ROWS_LIMIT + 1, 40])
def test_each_row_gets_its_own_experts(routed_experts: Form, rows: int) -> None:
    weights = Matrices()
    hidden, chosen, routing = routing_of(rows)
    output = routed_experts(hidden, chosen, routing, weights.dense())
    torch.testing.assert_close(output, row_by_row(hidden, chosen, routing, weights), atol=1e-4, rtol=1e-4)


@each_form
@pytest.mark.parametrize("rows", [3, ALL_ROWS_LIMIT + 5])
def test_experts_that_nobody_chose_are_not_touched(routed_experts: Form, rows: int) -> None:
    weights = Matrices()
    hidden, _, routing = routing_of(rows)
    chosen = torch.tensor([[0, 1, 5], [5, 3, 0], [1, 5, 3]])[torch.arange(rows) % 3]
    for expert in set(range(EXPERTS)) - set(chosen.flatten().tolist()):
        for matrix in (weights.gate, weights.up, weights.down):
            matrix[expert] = float("nan")
    output = routed_experts(hidden, chosen, routing, weights.dense())
    assert torch.isfinite(output).all()


@each_form
@pytest.mark.parametrize("rows", [1, 4, ALL_ROWS_LIMIT + 4])
def test_a_row_does_not_depend_on_its_neighbours(routed_experts: Form, rows: int) -> None:
    weights = Matrices()
    hidden, chosen, routing = routing_of(rows)
    together = routed_experts(hidden, chosen, routing, weights.dense())
    for row in range(rows):
        part = slice(row, row + 1)
        alone = routed_experts(hidden[part], chosen[part], routing[part], weights.dense())
        torch.testing.assert_close(together[part], alone, atol=1e-4, rtol=1e-4)


def packed_experts(weights: Matrices) -> tuple[Experts, Matrices]:
    """The weights in NVFP4 with one global scale per matrix, and what those stand for."""
    real = Matrices()
    kept: dict[str, list[Nvfp4Linear]] = {}
    for name in ("gate", "up", "down"):
        encoded = [encode_nvfp4(matrix) for matrix in getattr(weights, name)]
        setattr(real, name, torch.stack([decode_nvfp4(matrix) for matrix in encoded]))
        kept[name] = [Nvfp4Linear(*matrix) for matrix in encoded]
    gate_up = tuple(ParallelLinear(pair) for pair in zip(kept["gate"], kept["up"], strict=True))
    return Experts(gate_up, tuple(kept["down"])), real


def fp8_experts(weights: Matrices) -> tuple[Experts, Matrices]:
    """Up projections in FP8, the others plain: storage may differ between matrices."""
    real = Matrices()
    encoded = [encode_fp8_channel(matrix) for matrix in weights.up]
    real.up = torch.stack([matrix.weight.float() * matrix.scale for matrix in encoded])
    gate_up = tuple(
        ParallelLinear([DenseLinear(gate), Fp8ScaledLinear(up.weight, up.scale)])
        for gate, up in zip(weights.gate, encoded, strict=True)
    )
    return Experts(gate_up, tuple(DenseLinear(matrix) for matrix in weights.down)), real


@each_form
@pytest.mark.parametrize("storage", [packed_experts, fp8_experts])
@pytest.mark.parametrize("rows", [3, ALL_ROWS_LIMIT + 4])
def test_kept_quantised_they_equal_their_real_numbers(routed_experts: Form, storage, rows: int) -> None:
    experts, real = storage(Matrices())
    hidden, chosen, routing = routing_of(rows)
    output = routed_experts(hidden, chosen, routing, experts)
    torch.testing.assert_close(output, row_by_row(hidden, chosen, routing, real), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 6, host.FEW_ROWS, host.FEW_ROWS + 3])
def test_experts_that_every_row_has_are_as_good_as_chosen(rows: int) -> None:
    """The last two of seven serve every row, with weights of their own, beside two chosen ones."""
    weights = Matrices()
    hidden, _, _ = routing_of(rows)
    generator = torch.Generator().manual_seed(2)
    chosen = torch.stack([torch.randperm(5, generator=generator)[:2] for _ in range(rows)])
    routing = torch.rand(rows, 4, generator=generator)
    everyone = (5, 6)
    all_chosen = torch.cat((chosen, torch.tensor(everyone).expand(rows, 2)), 1)
    output = host.routed_experts(hidden, chosen, routing, weights.dense(), everyone)
    torch.testing.assert_close(output, row_by_row(hidden, all_chosen, routing, weights), atol=1e-4, rtol=1e-4)
