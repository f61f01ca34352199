"""Names of MTP tensors under prefixes that no engine looks for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WRONG_PREFIX = re.compile(r"(?P<prefix>(?:model\.|language_model\.)+)mtp\..+")


@dataclass(frozen=True)
class WrongPrefix:
    """Head tensors that some exporter has put below the trunk.

    Attributes:
        prefix: what stands before `mtp.`, with its dot.
        names: the full names, sorted.
    """

    prefix: str
    names: tuple[str, ...]


def wrong_prefixes(names: Iterable[str]) -> tuple[WrongPrefix, ...]:
    """Every prefix before `mtp.` among the names, for families whose head is `mtp.*` at the top level."""
    found: dict[str, list[str]] = {}
    for name in names:
        # The test is over hundreds of thousands of names: most have no "mtp." at all.
        if "mtp." in name and (match := _WRONG_PREFIX.fullmatch(name)):
            found.setdefault(match["prefix"], []).append(name)
    return tuple(WrongPrefix(prefix, tuple(sorted(members))) for prefix, members in sorted(found.items()))
