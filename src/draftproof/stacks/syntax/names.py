"""Names as they are written."""

from __future__ import annotations

import ast


def dotted_name(node: ast.expr) -> str | None:
    """`a.b.c` as text; None for anything but names and attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])
