"""Drafters that follow a script: acceptance becomes a matter of choice, so that every path of a step can be
tested.

A script sees a sequence and how many drafts it may make, and returns the drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Tokens
from itertools import cycle

from draftproof.runtime.sequence import Sequence
from draftproof.speculation.drafter import CommittedRows, Drafts

Script = Callable[[Sequence, int], Tokens[int]]


class ScriptedDrafter:
    """Proposes what the script says."""

    name = "scripted"
    keeps_rows = False

    def __init__(self, script: Script) -> None:
        self._script = script

    def propose(self, rows: CommittedRows) -> Drafts:
        return tuple(
            tuple(self._script(sequence, wanted))[:wanted] if wanted else ()
            for sequence, wanted in zip(rows.sequences, rows.wanted, strict=True)
        )


def oracle(references: Mapping[str, Tokens[int]]) -> Script:
    """Always right: the tokens that plain decoding gave each request."""

    def script(sequence: Sequence, wanted: int) -> Tokens[int]:
        produced = len(sequence.output)
        return references[sequence.request_id][produced : produced + wanted]

    return script


def anti(references: Mapping[str, Tokens[int]], vocabulary_size: int) -> Script:
    """Always wrong: each draft is the right token plus one."""
    right = oracle(references)

    def script(sequence: Sequence, wanted: int) -> Tokens[int]:
        return [(token + 1) % vocabulary_size for token in right(sequence, wanted)]

    return script


def empty(sequence: Sequence, wanted: int) -> Tokens[int]:
    """Never a draft."""
    return ()


def pattern(
    references: Mapping[str, Tokens[int]], vocabulary_size: int, accepted_counts: Tokens[int | None]
) -> Script:
    """In turn, per request: that many right drafts followed by wrong ones up to the limit; None for no draft
    at all."""
    right = oracle(references)
    wrong = anti(references, vocabulary_size)
    turns = {request_id: cycle(accepted_counts) for request_id in references}

    def script(sequence: Sequence, wanted: int) -> Tokens[int]:
        accepted = next(turns[sequence.request_id])
        if accepted is None:
            return ()
        return [*right(sequence, wanted)[:accepted], *wrong(sequence, wanted)[accepted:]]

    return script
