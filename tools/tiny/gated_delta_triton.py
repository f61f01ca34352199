"""The two sequential steps of the chunked gated delta rule as Triton kernels, with their gradients.

One program of `_invert` owns one 64 x 64 triangular system and substitutes forward row by row. One program of
`_forward` and `_backward` owns the state of one head (or a slice of its columns) and walks over the chunks.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from tools.tiny.gated_delta import GatedDelta, Steps, chunked

COLUMNS = 32
"""Columns of the state that one program owns."""


@triton.jit
def _invert(system, inverse, L: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * L * L
    rows = tl.arange(0, L)
    x = tl.where(rows[:, None] == rows[None, :], 1.0, 0.0)
    for row in range(1, L):
        factors = tl.load(system + base + row * L + rows, mask=rows < row, other=0.0)
        update = tl.sum(factors[:, None] * x, axis=0)
        x = tl.where(rows[:, None] == row, x - update[None, :], x)
    tl.store(inverse + base + rows[:, None] * L + rows[None, :], x)


@triton.jit
def _forward(
    read, written, key, decay, states, added, chunks,
    L: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token, row = tl.arange(0, L), tl.arange(0, K)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros([K, BLOCK], dtype=tl.float32)
    for chunk in range(chunks):
        at = tl.program_id(0).to(tl.int64) * chunks + chunk
        tl.store(states + at * K * V + row[:, None] * V + column[None, :], state.to(states.dtype.element_ty))
        reading = tl.load(read + at * L * K + token[:, None] * K + row[None, :])
        adding = tl.load(written + at * L * V + token[:, None] * V + column[None, :]).to(tl.float32)
        adding -= tl.dot(reading, state.to(reading.dtype))
        tl.store(added + at * L * V + token[:, None] * V + column[None, :], adding.to(added.dtype.element_ty))
        turned = tl.load(key + at * L * K + token[None, :] * K + row[:, None])
        state = state * tl.load(decay + at) + tl.dot(turned, adding.to(turned.dtype))


@triton.jit
def _backward(
    read, key, decay, grad_states, grad_added, grad_written, grad_next, chunks,
    L: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token, row = tl.arange(0, L), tl.arange(0, K)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    grad = tl.zeros([K, BLOCK], dtype=tl.float32)
    for step in range(chunks):
        at = tl.program_id(0).to(tl.int64) * chunks + chunks - 1 - step
        tl.store(
            grad_next + at * K * V + row[:, None] * V + column[None, :], grad.to(grad_next.dtype.element_ty)
        )
        keys = tl.load(key + at * L * K + token[:, None] * K + row[None, :])
        own = tl.load(grad_added + at * L * V + token[:, None] * V + column[None, :]).to(tl.float32)
        own += tl.dot(keys, grad.to(keys.dtype))
        tl.store(
            grad_written + at * L * V + token[:, None] * V + column[None, :],
            own.to(grad_written.dtype.element_ty),
        )
        turned = tl.load(read + at * L * K + token[None, :] * K + row[:, None])
        grad = grad * tl.load(decay + at) - tl.dot(turned, own.to(turned.dtype))
        grad += tl.load(grad_states + at * K * V + row[:, None] * V + column[None, :]).to(tl.float32)


@torch.library.custom_op("draftproof_tiny::unit_lower_inverse", mutates_args=())
def unit_lower_inverse(system: Tensor) -> Tensor:
    """Inverse of (identity + strictly lower part) of float32 [..., L, L]."""
    system = system.contiguous()
    inverse = torch.empty_like(system)
    size = system.shape[-1]
    _invert[(system.numel() // size**2,)](system, inverse, size, num_warps=4)
    return inverse


@unit_lower_inverse.register_fake
def _(system: Tensor) -> Tensor:
    return torch.empty_like(system, memory_format=torch.contiguous_format)


def _inverse_backward(ctx, grad: Tensor) -> Tensor:
    (turned,) = ctx.saved_tensors
    return -((turned @ grad.to(turned.dtype)) @ turned).float().tril(-1)


def _inverse_setup(ctx, inputs, output: Tensor) -> None:
    half = torch.bfloat16 if output.is_cuda else output.dtype
    ctx.save_for_backward(output.mT.to(half))


unit_lower_inverse.register_autograd(_inverse_backward, setup_context=_inverse_setup)


@torch.library.custom_op("draftproof_tiny::hand_on", mutates_args=())
def hand_on(read: Tensor, written: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """`Steps.hand_on`."""
    read, written, key, decay = (x.contiguous() for x in (read, written, key, decay))
    count, chunks, length, width = key.shape
    columns = written.shape[-1]
    states, added = key.new_empty(count, chunks, width, columns), torch.empty_like(written)
    block = min(COLUMNS, columns)
    _forward[(count, columns // block)](
        read, written, key, decay, states, added, chunks, length, width, columns, block, num_warps=4
    )
    return states, added


@hand_on.register_fake
def _(read: Tensor, written: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    count, chunks, _, width = key.shape
    states = key.new_empty(count, chunks, width, written.shape[-1])
    return states, torch.empty_like(written, memory_format=torch.contiguous_format)


@torch.library.custom_op("draftproof_tiny::hand_on_backward", mutates_args=())
def hand_on_backward(
    read: Tensor, key: Tensor, decay: Tensor, grad_states: Tensor, grad_added: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `written` and of the state after each chunk."""
    read, key, decay = (x.contiguous() for x in (read, key, decay))
    grad_states, grad_added = grad_states.contiguous(), grad_added.contiguous()
    count, chunks, length, width = key.shape
    columns = grad_added.shape[-1]
    grad_written, grad_next = torch.empty_like(grad_added), torch.empty_like(grad_states)
    block = min(COLUMNS, columns)
    _backward[(count, columns // block)](
        read, key, decay, grad_states, grad_added, grad_written, grad_next, chunks, length, width, columns,
        block, num_warps=4,
    )  # fmt: skip
    return grad_written, grad_next


@hand_on_backward.register_fake
def _(
    read: Tensor, key: Tensor, decay: Tensor, grad_states: Tensor, grad_added: Tensor
) -> tuple[Tensor, Tensor]:
    contiguous = torch.contiguous_format
    return (
        torch.empty_like(grad_added, memory_format=contiguous),
        torch.empty_like(grad_states, memory_format=contiguous),
    )


def _hand_on_backward(ctx, grad_states: Tensor, grad_added: Tensor) -> tuple[Tensor, ...]:
    read, key, decay, states, added = ctx.saved_tensors
    grad_written, grad_next = hand_on_backward(read, key, decay, grad_states, grad_added)
    grad_read = -(grad_written @ states.mT)
    grad_key = added @ grad_next.mT
    grad_decay = (states.float() * grad_next.float()).sum((-1, -2))
    return grad_read, grad_written, grad_key, grad_decay


def _hand_on_setup(ctx, inputs, output: tuple[Tensor, Tensor]) -> None:
    read, _, key, decay = inputs
    ctx.save_for_backward(read, key, decay, *output)


hand_on.register_autograd(_hand_on_backward, setup_context=_hand_on_setup)

TRITON = Steps(unit_lower_inverse, hand_on)
TOLERANCE = 0.03
"""Largest relative error of bf16 outputs and gradients against float32 that `checked_rule` lets pass."""

triton_chunked: GatedDelta = functools.partial(chunked, steps=TRITON)


def relative_errors(device: torch.device, dtype: torch.dtype, length: int = 512) -> list[float]:
    """Errors of output and five gradients against the plain rule in float32, on inputs with like keys."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    query, value = draw(2, length, 4, 64), draw(2, length, 4, 64)
    key = draw(2, length, 4, 64) + draw(2, 1, 4, 64)
    # Slow enough for a state to survive several chunks, or their decay would not be tested.
    decay, beta = -draw(2, length, 4).abs() * 0.01, draw(2, length, 4).sigmoid()
    weight = draw(2, length, 4, 64)
    results = []
    for rule, kind in ((chunked, torch.float32), (triton_chunked, dtype)):
        inputs = [x.detach().to(kind).requires_grad_() for x in (query, key, value)]
        inputs += [x.detach().requires_grad_() for x in (decay, beta)]
        output = rule(*inputs)
        results.append([output.detach(), *torch.autograd.grad((output.float() * weight).sum(), inputs)])
    return [float((a.float() - b.float()).norm() / a.float().norm()) for a, b in zip(*results, strict=True)]


def checked_rule(device: torch.device) -> GatedDelta:
    """The Triton rule when it agrees with the plain one on this device, else the plain one, with a line
    that says so.
    """
    errors = relative_errors(device, torch.bfloat16)
    agrees = max(errors) < TOLERANCE
    print(
        f"gated delta rule: {'Triton' if agrees else 'plain torch'}, relative errors",
        [f"{e:.1e}" for e in errors],
    )
    return triton_chunked if agrees else chunked
