"""The Triton form under Triton's interpreter, in BF16, against the definition."""

from __future__ import annotations

import pytest
import torch

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_decode.state import Commit
from draftproof.kernels.gated_delta_decode.triton import gated_delta_decode
from tests.kernels.gated_delta_decode.window import SCRAP, Lockstep

OUT = 0.02
"""Outputs are rounded to BF16: a relative error of 2^-9, of numbers up to about 4."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SPEC = GatedDeltaNetSpec(
    num_key_heads=1, num_value_heads=2, key_head_dim=16, value_head_dim=32, conv_kernel=4
)


@pytest.fixture
def lockstep() -> Lockstep:
    made = Lockstep(SPEC, gated_delta_decode, window_rows=4, device=DEVICE)
    for slot in range(1, 4):
        made.admit(slot, side=slot % 2)
    return made


def test_every_count_of_pending_rows(lockstep: Lockstep) -> None:
    lockstep.run([1], [0], 4, Commit.STASH).assert_equal(OUT)
    for pending in (0, 1, 2, 3, 4):
        lockstep.run([1], [pending], 4, Commit.STASH).assert_equal(OUT)


def test_sequences_of_different_sides_and_pending_rows(lockstep: Lockstep) -> None:
    lockstep.run([3, SCRAP, 1, SCRAP], [0, 0, 0, 0], 2, Commit.STASH).assert_equal(OUT)
    lockstep.run([1, 2, 3], [2, 0, 1], 2, Commit.STASH).assert_equal(OUT)


def test_certain_rows(lockstep: Lockstep) -> None:
    lockstep.run([2, 1], [0, 0], 3, Commit.STASH).assert_equal(OUT)
    lockstep.run([1, 2], [2, 3], 2, Commit.ALL).assert_equal(OUT)
    lockstep.run([1, 2], [0, 0], 1, Commit.ALL).assert_equal(OUT)


def test_without_a_stash() -> None:
    plain = Lockstep(SPEC, gated_delta_decode, window_rows=0, device=DEVICE)
    plain.admit(5, side=1)
    plain.run([5], [0], 1, Commit.ALL).assert_equal(OUT)
