"""Addressed Gumbel noise in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

TOKEN_STREAM = 1
"""Stream of the noise that chooses tokens."""

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
UNIFORM_BITS = 23
DROPPED_BITS = 32 - UNIFORM_BITS
LANES = 4
"""Words of one counter, hence consecutive token ids that share it."""


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10.

    Args:
        counter: four int64 tensors of 32-bit words, shapes that broadcast together and with the key. Bits
            above the 32nd are ignored in words 1 and 3 and in the key, and must be 0 in words 0 and 2.
        key: two int64 tensors of 32-bit words.

    Returns:
        Four int64 tensors of 32-bit words.
    """
    word_0, word_1, word_2, word_3 = counter
    key_0, key_1 = key
    for _ in range(ROUNDS):
        # Products wrap at 64 bits and >> copies the sign, but only the low 32 bits of each side are meant.
        # What only ever enters an xor (words 1 and 3, the key) stays unmasked: one mask at the end makes it
        # clean.
        product_0, product_2 = word_0 * MULTIPLIERS[0], word_2 * MULTIPLIERS[1]
        word_0 = ((product_2 >> 32) ^ word_1 ^ key_0) & WORD
        word_2 = ((product_0 >> 32) ^ word_3 ^ key_1) & WORD
        word_1, word_3 = product_2, product_0
        key_0, key_1 = key_0 + KEY_STEPS[0], key_1 + KEY_STEPS[1]
    return word_0, word_1 & WORD, word_2, word_3 & WORD


def gumbel_noise(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """Noise of chosen tokens.

    Args:
        seeds: [rows] int64.
        positions: [rows] int64, of the token that is being chosen.
        token_ids: [tokens] int64 for all rows, or [rows, tokens] int64 for each its own; in any order.

    Returns:
        [rows, tokens] float32.
    """
    words = torch.stack(_words(seeds, positions, token_ids >> 2), -1)
    lanes = (token_ids & (LANES - 1)).expand(words.shape[:-1])
    return gumbel_of_bits((words.gather(-1, lanes.unsqueeze(-1)).squeeze(-1) >> DROPPED_BITS).float())


def vocabulary_noise(seeds: Tensor, positions: Tensor, vocabulary_size: int) -> Tensor:
    """Noise of token ids 0 to vocabulary_size - 1; equal to `gumbel_noise` of them at a quarter of the work.

    Args:
        seeds: [rows] int64.
        positions: [rows] int64, of the token that is being chosen.
        vocabulary_size: how many tokens.

    Returns:
        [rows, vocabulary_size] float32.
    """
    counters = torch.arange(-(-vocabulary_size // LANES), device=seeds.device)
    words = torch.stack(_words(seeds, positions, counters), -1)
    return gumbel_of_bits((words.flatten(-2)[:, :vocabulary_size] >> DROPPED_BITS).float())


def _words(seeds: Tensor, positions: Tensor, counters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four words of each counter, [rows, counters] each."""
    seeds, positions = seeds.unsqueeze(-1), positions.unsqueeze(-1)
    stream = torch.full_like(positions, TOKEN_STREAM)
    return philox((counters, positions, (positions >> 32) & WORD, stream), (seeds, seeds >> 32))


def gumbel_of_bits(bits: Tensor) -> Tensor:
    """Standard Gumbel numbers, float32, from the upper 23 bits of words as float32."""
    # 23 bits and the half fit a float32 exactly, so no uniform is rounded to 0 or 1.
    uniform = (bits + 0.5) * 2.0**-UNIFORM_BITS
    return -torch.log(-torch.log(uniform))
