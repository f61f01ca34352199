"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(size: int) -> str:
    """Bytes in decimal units, as disks and model cards count: "13.19 GB"."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{int(amount)} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1000
    return f"{amount:.2f} TB"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """A count and its noun: "1 tensor", "1,553 tensors"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def listing(names: Sequence[str], shown: int = 5) -> str:
    """The first names and how many more there are: "a, b, c and 12 more"."""
    rest = len(names) - shown
    text = ", ".join(names[:shown])
    return f"{text} and {rest:,} more" if rest > 0 else text


def shortened(text: str, length: int) -> str:
    """A text of at most so many characters, cut between words where it is longer: "the head is not …"."""
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    between_words, _, _ = cut.rpartition(" ")
    return f"{(between_words or cut).rstrip(' ,;:')} …"[:length]
