"""HTML by construction: text becomes markup only through `tag`, which escapes it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset(("meta", "input", "rect", "path", "line"))


class Markup(str):
    """Text that is HTML already. Only `tag`, `joined` and `raw` make it."""

    __slots__ = ()


def tag(element: str, /, *content: str, **attributes: str | None) -> Markup:
    """One element.

    Args:
        element: its name.
        content: what is inside; `Markup` as it is, any other text escaped.
        attributes: "_" stands for "-", and one at the end is left out (`class_`); None leaves the attribute
            out, and an empty text writes its name alone.
    """
    written = "".join(
        f" {_attribute(key)}" + (f'="{escape(value, quote=True)}"' if value else "")
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{written}>" if element in ("meta", "input") else f"<{element}{written}/>")
    return Markup(f"<{element}{written}>{joined(content)}</{element}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts one after another; `Markup` as it is, any other text escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part, quote=True) for part in parts))


def raw(text: str) -> Markup:
    """Text of draftproof's own that is markup already: the style sheet. Never for text from outside."""
    return Markup(text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
