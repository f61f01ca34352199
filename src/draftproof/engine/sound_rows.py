"""Sampling a step's rows when some logits mean nothing: the sequences with sound rows go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from draftproof.errors import LogitsFault
from draftproof.runtime.sampler import SequenceRows, sample_rows


@dataclass(frozen=True)
class SampledRows:
    """The target's tokens of each sequence.

    Attributes:
        first_rows: where each sequence's rows begin.
        tokens: one per row of each sequence; zeros for lost ones.
        lost: indices of the sequences for which no token can be chosen at some row.
    """

    first_rows: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    lost: frozenset[int]


def sample_sound_rows(logits: Tensor, windows: Sequence[SequenceRows]) -> SampledRows:
    """`sample_rows` by sequence, without those whose logits have a fault.

    Args:
        logits: [rows, vocabulary] float32.
        windows: the rows' sequences in order.
    """
    borders = tuple(accumulate((window.count for window in windows), initial=0))
    spans = tuple(pairwise(borders))
    sound = list(range(len(windows)))
    tokens = [[0] * window.count for window in windows]
    while sound:
        rows = [row for index in sound for row in range(*spans[index])]
        chosen_logits = logits if len(sound) == len(windows) else logits[torch.tensor(rows)]
        try:
            sampled = iter(sample_rows(chosen_logits, [windows[index] for index in sound]).tolist())
        except LogitsFault as fault:
            if not fault.rows:
                raise
            faulty = {rows[row] for row in fault.rows}
            sound = [index for index in sound if faulty.isdisjoint(range(*spans[index]))]
            continue
        for index in sound:
            tokens[index] = [next(sampled) for _ in tokens[index]]
        break
    lost = frozenset(range(len(windows))) - frozenset(sound)
    return SampledRows(borders[:-1], tuple(map(tuple, tokens)), lost)
