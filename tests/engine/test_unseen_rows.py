"""Rows that a drafter has not seen: all of them, in order, without holes, and nothing else kept alive."""

from __future__ import annotations

import pytest
import torch

from draftproof.engine.unseen_rows import SeenRun, UnseenRows, shown_rows


def run(start: int, count: int) -> SeenRun:
    """Hidden states that are their positions, as a part of a larger tensor."""
    positions = torch.arange(start, start + count, dtype=torch.float32)
    step = positions[None, :, None].expand(4, count, 3).clone()
    return SeenRun(start, step[2], tuple(range(100 + start, 100 + start + count)))


def test_rows_come_back_in_order() -> None:
    unseen = UnseenRows()
    for each in (run(5, 1), run(6, 3), run(9, 1)):
        unseen.add(each)
    assert len(unseen) == 5
    taken = unseen.take()
    assert (taken.start, taken.following) == (5, (105, 106, 107, 108, 109))
    assert taken.hidden[:, 0].tolist() == [5, 6, 7, 8, 9]
    assert len(unseen) == 0


def test_a_hole_is_refused() -> None:
    unseen = UnseenRows()
    unseen.add(run(5, 2))
    for start in (6, 8):
        with pytest.raises(ValueError, match="do not follow 7"):
            unseen.add(run(start, 1))


def test_after_a_new_beginning_any_row_may_come() -> None:
    unseen = UnseenRows()
    unseen.add(run(5, 2))
    unseen.clear()
    unseen.add(run(0, 4))
    assert unseen.take().start == 0


def test_what_stays_is_no_part_of_what_its_step_computed() -> None:
    unseen = UnseenRows()
    first = run(0, 1)
    unseen.add(first)
    unseen.add(run(1, 1))
    first.hidden.fill_(7.0)
    assert unseen.take().hidden[:, 0].tolist() == [0.0, 1.0]


def test_rows_of_several_sequences_stand_side_by_side() -> None:
    rows = shown_rows([run(3, 1), run(10, 3)])
    assert (rows.starts, rows.counts) == ((3, 10), (1, 3))
    assert rows.following == [[103, 0, 0], [110, 111, 112]]
    assert rows.hidden[:, :, 0].tolist() == [[3.0, 0.0, 0.0], [10.0, 11.0, 12.0]]
