"""Which implementation of each op is in force here and why, with a self-check against the definition."""

from __future__ import annotations

from collections.abc import Callable

import torch

from draftproof.engine.build import load_target
from draftproof.engine.config import EngineConfig
from draftproof.kernels.gated_delta.reference import gated_delta, gated_delta_blocked
from draftproof.kernels.half_linear import fbgemm
from draftproof.kernels.noise.reference import gumbel_noise
from draftproof.kernels.noise.select import noise_for
from draftproof.models.stored_linear import DenseBackend

CPU = torch.device("cpu")
TOLERANCE = 1e-4

KernelCheck = tuple[str, Callable[[], str], Callable[[], str]]
"""Name of the op, what was chosen and why, and the self-check, which returns what it saw or raises
ArithmeticError."""


def _linear_choice() -> str:
    if load_target(EngineConfig()).backend is DenseBackend.FBGEMM_HALF:
        return "fbgemm-half (float32 on a CPU with FBGEMM; exact for BF16, FP8 and NVFP4 weights)"
    return "torch (this build or processor has no FBGEMM)"


def _linear_check() -> str:
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).bfloat16().float()
    rows = torch.linspace(-2, 2, 5 * 32).view(5, 32)
    if not fbgemm.is_available():
        return "torch.mm"
    return _close(fbgemm.multiply(rows, fbgemm.pack(weight)), rows @ weight.t())


def _gated_delta_check() -> str:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 7, 2, 8, generator=generator) / 3 for _ in range(3))
    decay, beta = -torch.rand(1, 7, 2, generator=generator), torch.rand(1, 7, 2, generator=generator)
    state = torch.randn(1, 2, 8, 8, generator=generator)
    blocked = gated_delta_blocked(query, key, value, decay, beta, state, 3)
    plain = gated_delta(query, key, value, decay, beta, state, 3)
    _close(blocked[1], plain[1])
    return _close(blocked[0], plain[0])


def _noise_check() -> str:
    seeds, positions, tokens = torch.tensor([7]), torch.tensor([11]), torch.arange(64)
    if not torch.equal(
        noise_for(CPU).of_tokens(seeds, positions, tokens[None]), gumbel_noise(seeds, positions, tokens)
    ):
        raise ArithmeticError("noise differs from its definition")
    return "bit for bit the definition"


def _close(found: torch.Tensor, expected: torch.Tensor) -> str:
    error = float((found - expected).abs().max())
    if not error < TOLERANCE:
        raise ArithmeticError(f"differs from the definition by {error:.2g}")
    return f"within {error:.0e} of the definition"


KERNEL_CHECKS: tuple[KernelCheck, ...] = (
    ("linear", _linear_choice, _linear_check),
    ("gated delta", lambda: "torch, blocked for several rows (no other backend for CPU)", _gated_delta_check),
    ("noise", lambda: "numpy on a CPU (same bits, fewer calls)", _noise_check),
)
