"""Muon for the matrices inside the layers, AdamW for everything else.

Muon (https://kellerjordan.github.io/posts/muon/) orthogonalises the momentum of each matrix; the update is
scaled to the size of an Adam update (https://arxiv.org/abs/2502.16982), so that one learning rate serves
both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# What AdamW takes although it has two dimensions: tables, routers, gates and the convolution.
_NOT_ORTHOGONAL = (
    "embed_tokens",
    "lm_head",
    "mlp.gate.",
    "shared_expert_gate",
    "in_proj_a",
    "in_proj_b",
    "conv1d",
)
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrices: Tensor, steps: int = 5) -> Tensor:
    """Near-orthogonal factors of a stack of matrices [N, rows, columns], by a quintic Newton-Schulz
    iteration.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.bfloat16()
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon:
    """Muon over parameters of two or three dimensions; those of one shape move together."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.1
    ) -> None:
        groups: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            groups[parameter.shape[-2:]].append(parameter)
        self._groups = list(groups.values())
        self._momenta = [[torch.zeros_like(parameter) for parameter in group] for group in self._groups]
        self._momentum, self._weight_decay = momentum, weight_decay

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update; gradients are read and left alone."""
        for group, momenta in zip(self._groups, self._momenta, strict=True):
            gradients = [parameter.grad for parameter in group]
            torch._foreach_lerp_(momenta, gradients, 1 - self._momentum)
            nesterov = torch._foreach_lerp(gradients, momenta, self._momentum)
            rows, columns = group[0].shape[-2:]
            stack = torch.cat([update.reshape(-1, rows, columns) for update in nesterov])
            scaled = orthogonalized(stack).float() * (0.2 * max(rows, columns) ** 0.5 * learning_rate)
            counts = [parameter.numel() // (rows * columns) for parameter in group]
            updates = [
                part.view_as(parameter) for part, parameter in zip(scaled.split(counts), group, strict=True)
            ]
            torch._foreach_mul_(group, 1 - self._weight_decay * learning_rate)
            torch._foreach_sub_(group, updates)


class Optimizer:
    """Muon and AdamW on one learning rate."""

    def __init__(self, model: nn.Module) -> None:
        matrices, rest = [], []
        for name, parameter in model.named_parameters():
            plain = parameter.dim() < 2 or any(part in name for part in _NOT_ORTHOGONAL)
            (rest if plain else matrices).append(parameter)
        self._muon = Muon(matrices)
        self._adam = torch.optim.AdamW(
            rest, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=rest[0].is_cuda
        )
        self._parameters = [*matrices, *rest]
        self._rest = rest

    def step(self, learning_rate: float) -> None:
        """One update of every parameter, then gradients are dropped."""
        torch.nn.utils.clip_grad_norm_(self._rest, 1.0)
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()
        self._muon.step(learning_rate)
        for parameter in self._parameters:
            parameter.grad = None
