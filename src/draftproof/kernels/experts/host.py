"""Routed experts with few operations, for the few rows of a decode step on a CPU.

There the time goes into starting operations, not into arithmetic: an expert runs on the rows that chose it,
all activations are one operation, and one product weighs and adds the experts of every row.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.experts import reference
from draftproof.kernels.experts.reference import Experts

FEW_ROWS = 16
"""Beyond this many rows the reference does as well."""


def routed_experts(
    rows: Tensor, chosen: Tensor, routing: Tensor, experts: Experts, everyone: tuple[int, ...] = ()
) -> Tensor:
    """Apply each row's experts; arguments and result as in the reference.

    Args:
        rows: [rows, hidden].
        chosen: [rows, experts_per_token] int64, distinct within a row.
        routing: [rows, experts_per_token + len(everyone)] in the dtype of `rows`.
        experts: the experts; all of the same intermediate width.
        everyone: experts that every row has besides its chosen ones; their weights are the last columns of
            `routing`.
    """
    count = rows.shape[0]
    if count > FEW_ROWS:
        for expert in everyone:
            chosen = torch.cat((chosen, chosen.new_full((count, 1), expert)), 1)
        return reference.routed_experts(rows, chosen, routing, experts)
    if count == 1:
        order = [*chosen.tolist()[0], *everyone]
        products = [experts.gate_up[expert](rows) for expert in order]
        activated = _activate(products).split_with_sizes([1] * len(order))
        outputs = [experts.down[expert](part) for expert, part in zip(order, activated, strict=True)]
        return torch.mm(routing, torch.cat(outputs))
    return _by_expert(rows, chosen.tolist(), routing, experts, everyone)


def _by_expert(
    rows: Tensor, choices: list[list[int]], routing: Tensor, experts: Experts, everyone: tuple[int, ...]
) -> Tensor:
    """Several rows: gather the rows of each distinct expert, and put its outputs back in the order of the
    rows."""
    members: dict[int, list[int]] = {}
    for row, choice in enumerate(choices):
        for expert in choice:
            members.setdefault(expert, []).append(row)
    for expert in everyone:
        members[expert] = list(range(len(choices)))
    single = rows.split_with_sizes([1] * len(choices))
    products = []
    for expert, chosen_by in members.items():
        if len(chosen_by) == 1:
            inputs = single[chosen_by[0]]
        elif len(chosen_by) == len(choices):
            inputs = rows
        else:
            inputs = torch.cat([single[row] for row in chosen_by])
        products.append(experts.gate_up[expert](inputs))
    activated = _activate(products).split_with_sizes([len(chosen_by) for chosen_by in members.values()])
    outputs = torch.cat([experts.down[expert](part) for expert, part in zip(members, activated, strict=True)])
    # Where each row finds the output of each of its experts.
    place = {pair: index for index, pair in enumerate((e, row) for e in members for row in members[e])}
    places = [place[expert, row] for row, choice in enumerate(choices) for expert in (*choice, *everyone)]
    ordered = outputs.index_select(0, torch.tensor(places, device=rows.device))
    return torch.bmm(routing.unsqueeze(1), ordered.view(*routing.shape, -1)).squeeze(1)


def _activate(products: list[Tensor]) -> Tensor:
    """silu(gate) * up of all experts' rows, [rows of all experts, intermediate]."""
    gate, up = torch.cat(products).chunk(2, -1)
    return F.silu(gate).mul_(up)
