"""Which tokens drafts are chosen among: a file that names them, or the tokenizer's most frequent ones.

The file is text: one token id a line, in any order; what follows a `#` is a comment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from draftproof.errors import UsageError

DEFAULT_ROWS = 32_768
"""Tokens of a draft head unless something else is asked for."""

FREQUENT = "frequent"
"""In place of a number or a file: as many of the most frequent tokens as pay."""
ALL = "all"
"""In place of a number or a file: the target's whole vocabulary."""
REMEDY = "Give one token id a line."
MOST_DIGITS = 18
"""Of a number of tokens or a token id."""
MOST_NAMED = 200
"""Characters of a file's name in an error."""


def choose_draft_tokens(choice: str, vocabulary_size: int, always: Iterable[int]) -> tuple[int, ...] | None:
    """The tokens that drafts are chosen among, ascending; None for all.

    Args:
        choice: `FREQUENT`, `ALL`, how many of the most frequent tokens, or a file that names them.
        vocabulary_size: of the model.
        always: tokens that must be among the most frequent ones, such as those that end turns.

    Raises:
        UsageError: the file is unusable, or the number is 0.
    """
    if choice == ALL:
        return None
    if choice != FREQUENT and not is_number(choice):
        return read_draft_vocabulary(Path(choice), vocabulary_size)
    rows = DEFAULT_ROWS if choice == FREQUENT else int(choice)
    if rows == 0:
        raise UsageError("a draft vocabulary of 0 tokens", "Use --drafter none for plain decoding.")
    return None if rows >= vocabulary_size else frequent_tokens(vocabulary_size, rows, always)


def read_draft_vocabulary(path: Path, vocabulary_size: int) -> tuple[int, ...]:
    """The token ids that a file names, ascending.

    Args:
        path: of the file.
        vocabulary_size: ids must be below it.

    Raises:
        UsageError: the file cannot be read, a line is no token id or not in the vocabulary, an id stands
            twice, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        name = str(path)[:MOST_NAMED]
        raise UsageError(f"the draft vocabulary {name} cannot be read: {reason}", REMEDY) from error
    found: dict[int, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not is_number(text) or int(text) >= vocabulary_size:
            raise UsageError(
                f"{path}, line {number}: {text[:40]!r} is no token id below {vocabulary_size}", REMEDY
            )
        if int(text) in found:
            raise UsageError(
                f"{path}, line {number}: token {text} stands in line {found[int(text)]} already",
                "Name each token once.",
            )
        found[int(text)] = number
    if not found:
        raise UsageError(f"the draft vocabulary {path} names no token", REMEDY)
    return tuple(sorted(found))


def write_draft_vocabulary(path: Path, token_ids: Iterable[int], comment: str) -> None:
    """Write a file that `read_draft_vocabulary` reads."""
    lines = [f"# {comment}", *(str(token_id) for token_id in sorted(token_ids))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def frequent_tokens(vocabulary_size: int, rows: int, always: Iterable[int]) -> tuple[int, ...]:
    """The tokenizer's most frequent tokens, ascending.

    A byte-pair tokenizer numbers its tokens in the order in which it merged them, and it merges the most
    frequent pair of its training text next: low ids are frequent. Special tokens stand behind all of these
    whatever their frequency, so the ones that end turns have to be named.

    Args:
        vocabulary_size: of the model.
        rows: how many tokens, at least as many as `always` names.
        always: tokens that must be among them.
    """
    chosen = {token_id for token_id in always if token_id < vocabulary_size}
    for token_id in range(vocabulary_size):
        if len(chosen) >= rows:
            break
        chosen.add(token_id)
    return tuple(sorted(chosen))


def tokens_of_texts(texts: Iterable[Iterable[int]], rows: int, always: Iterable[int]) -> tuple[int, ...]:
    """The most frequent tokens of tokenized texts, ascending; of equally frequent ones the lower ids.

    Args:
        texts: token ids of each.
        rows: how many tokens at most.
        always: tokens that must be among them.
    """
    counts: dict[int, int] = {}
    for text in texts:
        for token_id in text:
            counts[token_id] = counts.get(token_id, 0) + 1
    chosen = set(always)
    for token_id in sorted(counts, key=lambda each: (-counts[each], each)):
        if len(chosen) >= rows:
            break
        chosen.add(token_id)
    return tuple(sorted(chosen))


def is_number(text: str) -> bool:
    """Digits, not more of them than Python reads as a number."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
