"""The device form's definition against the window step that it restates."""

from __future__ import annotations

import pytest
import torch

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_decode.reference import gated_delta_decode
from draftproof.kernels.gated_delta_decode.state import Commit
from tests.kernels.gated_delta_decode.window import SCRAP, Lockstep

SPEC = GatedDeltaNetSpec(num_key_heads=2, num_value_heads=4, key_head_dim=6, value_head_dim=5, conv_kernel=4)


@pytest.fixture
def lockstep() -> Lockstep:
    made = Lockstep(SPEC, gated_delta_decode, window_rows=4, dtype=torch.float32)
    for slot in range(1, 4):
        made.admit(slot, side=slot % 2)
    return made


def test_stashed_rows_wait_until_they_are_pending(lockstep: Lockstep) -> None:
    """Windows of changing width, each accepting another number of the last one's rows."""
    for rows, pending in ((4, 0), (4, 0), (3, 4), (1, 2), (2, 1), (4, 1)):
        lockstep.run([2], [pending], rows, Commit.STASH).assert_equal(1e-5)


def test_each_sequence_has_its_own_pending_rows_and_side(lockstep: Lockstep) -> None:
    lockstep.run([3, 1, 2], [0, 0, 0], 4, Commit.STASH).assert_equal(1e-5)
    lockstep.run([1, 2], [4, 1], 3, Commit.STASH).assert_equal(1e-5)
    lockstep.run([2, 3, 1], [3, 2, 0], 2, Commit.STASH).assert_equal(1e-5)


def test_certain_rows_enter_the_state_at_once(lockstep: Lockstep) -> None:
    lockstep.run([1, 2], [0, 0], 4, Commit.STASH).assert_equal(1e-5)
    lockstep.run([1, 2], [2, 4], 3, Commit.ALL).assert_equal(1e-5)
    lockstep.run([1, 2], [0, 0], 1, Commit.ALL).assert_equal(1e-5)
    lockstep.run([2, 1], [0, 0], 4, Commit.STASH).assert_equal(1e-5)


def test_padding_shares_the_scrap_slot_and_harms_nobody(lockstep: Lockstep) -> None:
    lockstep.run([SCRAP, 2, SCRAP, 1], [0, 0, 0, 0], 4, Commit.STASH).assert_equal(1e-5)
    lockstep.run([2, 1, SCRAP, SCRAP], [2, 3, 0, 0], 4, Commit.STASH).assert_equal(1e-5)


def test_without_a_stash_only_certain_rows_run() -> None:
    plain = Lockstep(SPEC, gated_delta_decode, window_rows=0, dtype=torch.float32)
    plain.admit(5, side=1)
    for rows in (1, 3, 1):
        plain.run([5], [0], rows, Commit.ALL).assert_equal(1e-5)


def test_nothing_else_is_touched(lockstep: Lockstep) -> None:
    before = {name: pool.clone() for name, pool in vars(lockstep.state).items()}
    lockstep.run([2], [0], 2, Commit.STASH)
    others = [slot for slot in range(lockstep.state.recurrent.shape[0]) if slot != 2]
    for name, pool in vars(lockstep.state).items():
        kept, was = (
            part[others] if name == "recurrent" else part[:, others] for part in (pool, before[name])
        )
        torch.testing.assert_close(kept, was, atol=0, rtol=0, equal_nan=True)
    side_read = 0
    torch.testing.assert_close(
        lockstep.state.convolution[side_read, 2], before["convolution"][side_read, 2], atol=0, rtol=0
    )
