"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.stacks.cache_folder import cache_folder


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/draftproof"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/var/b"}, "/var/b/draftproof"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "relative"}, "/home/a/.cache/draftproof"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/var/b", "DRAFTPROOF_CACHE": "/c"}, "/c"),
    ],
)
def test_the_most_particular_variable_wins(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment) == Path(folder)
