"""Which implementation makes the noise on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kernels.noise import host, reference


@dataclass(frozen=True)
class Noise:
    """One implementation; all give the same numbers.

    Attributes:
        name: of the implementation, for reports.
        of_tokens: (seeds [rows], positions [rows], token_ids [rows, tokens]) to noise [rows, tokens].
        of_vocabulary: (seeds [rows], positions [rows], vocabulary size) to noise [rows, vocabulary size].
    """

    name: str
    of_tokens: Callable[[Tensor, Tensor, Tensor], Tensor]
    of_vocabulary: Callable[[Tensor, Tensor, int], Tensor]


REFERENCE = Noise("reference", reference.gumbel_noise, reference.vocabulary_noise)
HOST = Noise("host", host.gumbel_noise, host.vocabulary_noise)


def noise_for(device: torch.device) -> Noise:
    """The implementation for tensors on `device`."""
    return HOST if device.type == "cpu" else REFERENCE
