"""Addressed Gumbel noise on the CPU: the numbers of `reference`, bit for bit, in a quarter of the calls.

numpy has unsigned 32-bit words and reads the two halves of a product without computing them; a step of a
small model spends its time on calls, not on numbers.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.kernels.noise.reference import (
    DROPPED_BITS,
    KEY_STEPS,
    LANES,
    MULTIPLIERS,
    ROUNDS,
    TOKEN_STREAM,
    gumbel_of_bits,
)

Words = NDArray[np.uint32]

_MULTIPLIERS = np.array(MULTIPLIERS, dtype=np.uint64).reshape(2, 1, 1)
_KEY_OFFSETS = np.arange(ROUNDS, dtype=np.uint32).reshape(-1, 1, 1, 1) * np.array(
    KEY_STEPS, dtype=np.uint32
).reshape(2, 1, 1)


def gumbel_noise(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """Noise of chosen tokens; arguments and result of `reference.gumbel_noise`, on the CPU."""
    ids = token_ids.numpy()
    words = _words(seeds, positions, ids >> 2)
    lanes = np.broadcast_to(ids & (LANES - 1), words.shape[:2])
    chosen = words.reshape(-1, LANES)[np.arange(lanes.size), lanes.reshape(-1)]
    return _gumbel(chosen.reshape(lanes.shape))


def vocabulary_noise(seeds: Tensor, positions: Tensor, vocabulary_size: int) -> Tensor:
    """Noise of token ids 0 to vocabulary_size - 1; as `reference.vocabulary_noise`, on the CPU."""
    words = _words(seeds, positions, np.arange(-(-vocabulary_size // LANES)))
    return _gumbel(words.reshape(len(words), -1)[:, :vocabulary_size])


def _words(seeds: Tensor, positions: Tensor, counters: NDArray[np.int64]) -> Words:
    """The four words of counters [counters] or [rows, counters], as [rows, counters, 4]."""
    position_words, seed_words = _halves(positions), _halves(seeds)
    # Words 0 and 2 in one array and 1 and 3 in another: each round is one multiplication and two xors.
    even = np.empty((2, len(seeds), counters.shape[-1]), dtype=np.uint32)
    odd = np.empty_like(even)
    even[0], even[1] = counters, position_words[1]
    odd[0], odd[1] = position_words[0], TOKEN_STREAM
    for keys in seed_words + _KEY_OFFSETS:
        low, high = _split(np.multiply(even, _MULTIPLIERS, dtype=np.uint64))
        mixed = odd ^ keys
        mixed ^= high[::-1]
        even, odd = mixed, low[::-1]
    words = np.empty((*even.shape[1:], LANES), dtype=np.uint32)
    words[..., 0], words[..., 1], words[..., 2], words[..., 3] = even[0], odd[0], even[1], odd[1]
    return words


def _split(numbers: NDArray[np.uint64]) -> tuple[Words, Words]:
    """Low and high words of 64-bit numbers, without computing either."""
    words = numbers.view(np.uint32)
    return (
        (words[..., 0::2], words[..., 1::2])
        if sys.byteorder == "little"
        else (words[..., 1::2], words[..., 0::2])
    )


def _halves(numbers: Tensor) -> Words:
    """Low and high words of int64 numbers [rows], as [2, rows, 1]."""
    return np.array(_split(np.ascontiguousarray(numbers.numpy()).view(np.uint64)))[..., None]


def _gumbel(words: Words) -> Tensor:
    """From words to Gumbel numbers; the logarithms are torch's, as in `reference`."""
    return gumbel_of_bits(torch.from_numpy((words >> DROPPED_BITS).astype(np.float32)))
