"""Routing of a step's rows: the definition against its words, Triton's kernels against the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.packing import pack_dense, pack_int8
from draftproof.kernels.routing import reference
from draftproof.kernels.routing import triton as portable
from draftproof.kernels.routing.cuda import unsupported_shape
from draftproof.kernels.routing.routing import (
    BLOCK_PAIRS,
    FewRowsRouting,
    ManyRowsRouting,
    RoutingScratch,
    allocate_routing,
    routing_scratch,
)

CPU = torch.device("cpu")
POISON = 77


def spec_of(experts: int = 13, per_token: int = 3, shared: bool = True, normalize: bool = True) -> MoeSpec:
    return MoeSpec(experts, per_token, 16, 16 if shared else 0, normalize)


def inputs(spec: MoeSpec, rows: int, hidden: int = 48) -> tuple[Tensor, NormScale, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    outputs = spec.num_experts + (spec.shared_intermediate_size > 0)
    residual = torch.randn(rows, hidden, generator=generator).bfloat16()
    norm = NormScale(torch.rand(hidden, generator=generator) + 0.5, 1e-6)
    return residual, norm, torch.randn(outputs, hidden, generator=generator) * hidden**-0.5


def poisoned(spec: MoeSpec, rows: int) -> tuple[FewRowsRouting | ManyRowsRouting, RoutingScratch]:
    routing = allocate_routing(rows, spec, CPU)
    for part in vars(routing).values():
        part.fill_(POISON)
    outputs = spec.num_experts + (spec.shared_intermediate_size > 0)
    return routing, routing_scratch(rows, spec, -(-outputs // 16) * 16, CPU)


def test_few_rows_list_their_distinct_experts_in_ascending_order() -> None:
    spec = spec_of()
    routing, scratch = poisoned(spec, 4)
    residual, norm, weight = inputs(spec, 4)
    reference.route(residual, norm, pack_dense(weight), spec, scratch, routing)
    assert isinstance(routing, FewRowsRouting)
    count = int(routing.distinct[0])
    listed = routing.distinct[1 : 1 + count].tolist()
    assert listed == sorted(set(scratch.chosen.flatten().tolist()))
    for row in range(4):
        weights = dict(zip(listed, routing.row_weights[:count, row].tolist(), strict=True))
        chosen = dict(zip(scratch.chosen[row].tolist(), scratch.weights[row].tolist(), strict=True))
        assert {expert: weight for expert, weight in weights.items() if weight} == chosen
    assert not routing.row_weights[count:].any()
    assert not routing.row_weights[:, 4:].any()
    assert not routing.distinct[1 + count :].any()


def test_normalised_weights_are_a_softmax_over_the_chosen_and_others_over_all() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    weights, chosen = reference.choose(logits, spec_of(4, 2))
    assert chosen.tolist() == [[1, 2]]
    torch.testing.assert_close(weights, torch.tensor([[2.0, 1.0]]).softmax(-1))
    weights, _ = reference.choose(logits, spec_of(4, 2, normalize=False))
    torch.testing.assert_close(weights, logits.softmax(-1)[:, [1, 2]])


@pytest.mark.parametrize(
    ("logits", "chosen"),
    [([1.0, 3.0, 3.0, 3.0], [1, 2]), ([float("nan"), 0.0, -1.0, float("nan")], [1, 2])],
    ids=["equal logits: the lower expert", "NaN: after every number"],
)
def test_choice_is_definite(logits: list[float], chosen: list[int]) -> None:
    spec = spec_of(4, 2, shared=False)
    row = torch.tensor([logits])
    assert reference.choose(row, spec)[1].tolist() == [chosen]
    routing, scratch = poisoned(spec, 1)
    scratch.logits[:, :4] = row
    portable.choose(spec, scratch, routing)
    assert isinstance(routing, FewRowsRouting)
    assert routing.distinct.tolist() == [2, *chosen]


def test_many_rows_sort_their_pairs_by_expert_and_then_by_row() -> None:
    spec = spec_of()
    routing, scratch = poisoned(spec, 60)
    residual, norm, weight = inputs(spec, 60)
    reference.route(residual, norm, pack_dense(weight), spec, scratch, routing)
    assert isinstance(routing, ManyRowsRouting)
    pairs = sorted((int(expert), row) for row in range(60) for expert in scratch.chosen[row])
    assert routing.pair_rows.tolist() == [row for _, row in pairs]
    for row in range(60):
        for choice in range(3):
            place = int(routing.pair_places[row, choice])
            assert pairs[place] == (int(scratch.chosen[row, choice]), row)
            assert routing.pair_weights[place] == scratch.weights[row, choice]
    counts = routing.offsets.diff().tolist()
    assert counts == [sum(expert == each for each, _ in pairs) for expert in range(13)]
    assert routing.blocks[0] == sum(-(-count // BLOCK_PAIRS) for count in counts)
    assert max(counts) > BLOCK_PAIRS


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        (spec_of(), 1),
        (spec_of(), 5),
        (spec_of(8, 2, shared=False, normalize=False), 8),
        (spec_of(), 17),
        (spec_of(40, 5, shared=False, normalize=False), 33),
    ],
    ids=lambda value: (
        str(value) if isinstance(value, int) else f"{value.num_experts}-{value.experts_per_token}"
    ),
)
def test_triton_routes_as_the_definition(spec: MoeSpec, rows: int) -> None:
    residual, norm, weight = inputs(spec, rows, hidden=80)
    outcomes = []
    for route in (reference.route, portable.route):
        routing, scratch = poisoned(spec, rows)
        route(residual, norm, pack_dense(weight), spec, scratch, routing)
        outcomes.append(vars(routing))
    for name, expected in outcomes[0].items():
        # Sums in another order: relative differences of a few float32 roundings.
        torch.testing.assert_close(outcomes[1][name], expected, rtol=1e-5, atol=1e-6, msg=name)


def test_kernels_take_bf16_routers_only() -> None:
    spec = spec_of()
    residual, norm, weight = inputs(spec, 1)
    routing, scratch = poisoned(spec, 1)
    router = pack_dense(weight)
    assert portable.supports_route(residual, norm, router, spec, scratch, routing) is None
    router = pack_int8(weight)
    reason = portable.supports_route(residual, norm, router, spec, scratch, routing)
    assert reason == "the router is int8, not bf16"
    assert unsupported_shape(1, 2048, router, spec) == reason


@pytest.mark.parametrize(
    ("rows", "hidden", "experts", "reason"),
    [
        (512, 2048, 256, None),
        (1, 4096, 512, None),
        (513, 2048, 256, "513 rows, at most 512"),
        (1, 1100, 256, "hidden size 1100 is no multiple of 512 from 1024 to 4096"),
        (1, 2048, 600, "8 of 600 experts"),
    ],
)
def test_shapes_of_the_cuda_kernel(rows: int, hidden: int, experts: int, reason: str | None) -> None:
    router = pack_dense(torch.zeros(1, 32))
    assert unsupported_shape(rows, hidden, router, spec_of(experts, 8)) == reason
