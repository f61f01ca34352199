"""Text that came out of a file, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """The same text with control and direction characters and broken surrogates written as escapes.

    Tensor names and config values are written by strangers: an escape sequence in one could clear the screen
    or repaint a verdict. Newlines and tabs become single spaces.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\n\t":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def make_printable(evidence: object, *fields: str) -> None:
    """Makes fields of a frozen dataclass printable, texts or tuples of texts.

    To be called from its `__post_init__` only.
    """
    for field in fields:
        value = getattr(evidence, field)
        safe = printable(value) if isinstance(value, str) else tuple(map(printable, value))
        object.__setattr__(evidence, field, safe)
