"""The line that says how many drafts are made, and why."""

from __future__ import annotations

from draftproof.engine.choice_line import choice_line
from draftproof.speculation.draft_choice import DraftArm


def test_each_batch_size_has_its_k_and_both_speeds() -> None:
    arms = (
        DraftArm(1, 0, 0.010, 100.0, False),
        DraftArm(1, 1, 0.014, 121.4, True),
        DraftArm(8, 0, 0.050, 20.0, True),
        DraftArm(8, 1, 0.090, 18.0, False),
    )
    assert choice_line(arms) == (
        "drafts a pass: 1 at batch 1 (121, plain 100), 0 at batch 8 (20); tokens/s of a sequence"
    )


def test_where_nothing_is_compared_there_is_no_line() -> None:
    assert choice_line(()) == ""
