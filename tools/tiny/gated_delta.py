"""The gated delta rule over whole sequences, in chunks of 64 tokens.

Definition (https://arxiv.org/abs/2412.06464): S_t = exp(g_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t k_t
v_t^T and o_t = S_t^T q_t / sqrt(d), with unit q and k. Within a chunk the rule is one triangular system;
between chunks one state is handed on. Those two steps are plain torch here and Triton kernels in
`gated_delta_triton`; everything else is matrix products over all chunks at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 64

GatedDelta = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(query, key [B, T, H, Dk], value [B, T, H, Dv], log decay [B, T, H], beta [B, T, H]) -> [B, T, H, Dv]."""


class Steps(NamedTuple):
    """The two steps that are not matrix products over all chunks.

    Attributes:
        inverse: float32 [..., L, L] -> inverse of (identity + its strictly lower part). hand_on: (read [N, C,
        L, K], written [N, C, L, V], key [N, C, L, K], decay [N, C]) -> the state at the start
            of each chunk [N, C, K, V] and what each token adds, [N, C, L, V].
    """

    inverse: Callable[[Tensor], Tensor]
    hand_on: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def plain_inverse(system: Tensor) -> Tensor:
    """`Steps.inverse` by a triangular solve."""
    identity = torch.eye(system.shape[-1], device=system.device, dtype=system.dtype).expand_as(system)
    return torch.linalg.solve_triangular(system, identity, upper=False, unitriangular=True)


def plain_hand_on(read: Tensor, written: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """`Steps.hand_on`, one chunk after the other."""
    state = key.new_zeros(key.shape[0], key.shape[-1], written.shape[-1])
    states, added = [], []
    for chunk in range(key.shape[1]):
        states.append(state)
        added.append(written[:, chunk] - read[:, chunk] @ state)
        state = state * decay[:, chunk, None, None] + key[:, chunk].mT @ added[-1]
    return torch.stack(states, 1), torch.stack(added, 1)


PLAIN = Steps(plain_inverse, plain_hand_on)


def unit(x: Tensor) -> Tensor:
    """Vectors of length one along the last dimension, in float32."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunked(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, steps: Steps = PLAIN
) -> Tensor:
    """The rule; matrix products run in the dtype of `value`, decays and the triangular system in float32.

    Returns:
        [B, T, H, Dv] in the dtype of `value`.
    """
    batch, length, heads, width = key.shape
    dtype = value.dtype
    padding = -length % CHUNK

    def chunks(x: Tensor) -> Tensor:
        if padding:
            x = functional.pad(x, (0, 0, 0, 0, 0, padding))
        return x.transpose(1, 2).reshape(batch * heads, -1, CHUNK, x.shape[-1])

    query, key, value = chunks(unit(query) * width**-0.5), chunks(unit(key)), chunks(value)
    beta = chunks(beta.float().unsqueeze(-1))
    total = chunks(decay.float().unsqueeze(-1)).squeeze(-1).cumsum(-1)
    grown, left = total.exp().unsqueeze(-1), (total[..., -1:] - total).exp().unsqueeze(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=key.device).triu(1)
    between = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(later, float("-inf")).exp()
    plain_key = key.to(dtype)
    system = ((key * beta).to(dtype) @ plain_key.mT).float() * between
    inside = ((query.to(dtype) @ plain_key.mT).float() * between).to(dtype)
    inverse = steps.inverse(system).to(dtype)
    read = inverse @ (key * beta * grown).to(dtype)
    written = inverse @ (value.float() * beta).to(dtype)
    states, added = steps.hand_on(read, written, (key * left).to(dtype), total[..., -1].exp())
    output = (query * grown).to(dtype) @ states.to(dtype) + inside @ added.to(dtype)
    return output.reshape(batch, heads, -1, output.shape[-1]).transpose(1, 2)[:, :length]
