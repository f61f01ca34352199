"""The choice of K in one line, with the figures that it goes by. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.speculation.draft_choice import DraftArm


def choice_line(arms: Sequence[DraftArm]) -> str:
    """How many drafts batches of each size get, and what is expected of that and of plain decoding; "" where
    nothing is compared."""
    plain = {arm.batch: arm.tokens_per_second for arm in arms if arm.draft_tokens == 0}
    chosen = [
        f"{arm.draft_tokens} at batch {arm.batch} ({_speeds(arm, plain[arm.batch])})"
        for arm in arms
        if arm.is_chosen
    ]
    return f"drafts a pass: {', '.join(chosen)}; tokens/s of a sequence" if chosen else ""


def _speeds(arm: DraftArm, plain: float) -> str:
    """Of an arm, and of plain decoding if that is another one."""
    if arm.draft_tokens == 0:
        return f"{plain:.0f}"
    return f"{arm.tokens_per_second:.0f}, plain {plain:.0f}"
