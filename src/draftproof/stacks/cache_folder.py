"""Where draftproof keeps what it fetched and found: the user's cache folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`DRAFTPROOF_CACHE`, else draftproof in `XDG_CACHE_HOME`, else in ~/.cache. It may not exist yet.

    Args:
        environment: variables of the process.
    """
    own = environment.get("DRAFTPROOF_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = environment.get("XDG_CACHE_HOME")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "draftproof"
    return Path(environment.get("HOME") or Path.home()) / ".cache" / "draftproof"
