"""NEXTN: drafts from the checkpoint's own multi-token-prediction head, chained over its own output."""

from __future__ import annotations

from draftproof.models.qwen3_5_mtp import MtpHead
from draftproof.runtime.sampler import SequenceRows, sample_drafts
from draftproof.runtime.state_store import StateStore
from draftproof.speculation.drafter import CommittedRows, Drafts


class NextnDrafter:
    """Runs the head over every committed row, so that its own keys and values are complete, then chains.

    Drafts are drawn with the target's rule and the target's noise at the same address, so that a head that
    is sure of itself agrees with the target at any temperature.

    Slots of a chain are written past the committed positions; the next window's rows overwrite them before
    anything reads them, so the head's cache needs no rollback.

    Args:
        head: the loaded head.
        store: owner of the head's pages.
    """

    name = "nextn"
    keeps_rows = True

    def __init__(self, head: MtpHead, store: StateStore) -> None:
        self._head = head
        self._store = store

    def propose(self, rows: CommittedRows) -> Drafts:
        slots = [sequence.slot for sequence in rows.sequences]
        width = max(rows.counts)
        attention = self._store.attention_rows(slots, rows.starts, rows.counts)
        hidden = self._head.last(
            rows.next_token_ids[:, :width], rows.hidden[:, :width], attention, self._store.head_caches
        )
        depth = max(rows.wanted)
        if depth == 0:
            return ((),) * len(slots)
        drafts: list[list[int]] = [[] for _ in slots]
        for step in range(depth):
            windows = [
                SequenceRows(context, tuple(chain), first_row=step)
                for context, chain in zip(rows.contexts, drafts, strict=True)
            ]
            tokens = sample_drafts(self._head.logits(hidden[:, 0]), windows)
            for chain, token in zip(drafts, tokens.tolist(), strict=True):
                chain.append(token)
            if step + 1 < depth:
                starts = [start + count + step for start, count in zip(rows.starts, rows.counts, strict=True)]
                attention = self._store.attention_rows(slots, starts, (1,) * len(slots))
                hidden = self._head.forward(tokens.unsqueeze(1), hidden, attention, self._store.head_caches)
        return tuple(tuple(chain[:wanted]) for chain, wanted in zip(drafts, rows.wanted, strict=True))
