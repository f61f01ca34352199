"""Files of ours over a stack's tree: read in the place of its own, listed only where it lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.errors import SourceError
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.source import SourceTree
from tests.support.stack_wheels import SGLANG_FILES, write_files

ARGUMENTS = "sglang/srt/server_args.py"
MODEL = "sglang/srt/models/qwen3_5_mtp.py"
ADDED = "sglang/ours.py"


@pytest.fixture
def original(tmp_path: Path) -> SourceTree:
    return SourceTree(write_files(tmp_path, SGLANG_FILES))


@pytest.fixture
def tree(original: SourceTree) -> OverlaidTree:
    return OverlaidTree(original, {ARGUMENTS: "page_size = 2\n", MODEL: None, ADDED: "page_size = 3\n"})


def test_reading_prefers_ours(original: SourceTree, tree: OverlaidTree) -> None:
    assert tree.text(ARGUMENTS) == "page_size = 2\n"
    assert tree.text(ADDED) == "page_size = 3\n"
    assert tree.digest(ARGUMENTS) != original.digest(ARGUMENTS)
    assert tree.syntax("sglang/_version.py") is original.syntax("sglang/_version.py")
    with pytest.raises(SourceError):
        tree.text(MODEL)


def test_listings_leave_removed_files_out(tree: OverlaidTree) -> None:
    assert not tree.has(MODEL)
    assert tree.has(ADDED)
    assert tree.files("sglang/srt/models") == ("sglang/srt/models/__init__.py",)
    assert ADDED not in tree.walk("sglang")


def test_searches_see_replaced_text(original: SourceTree, tree: OverlaidTree) -> None:
    assert original.containing("sglang", "ServerArgs") == (ARGUMENTS,)
    assert tree.containing("sglang", "ServerArgs") == ()
    assert tree.containing("sglang", "page_size") == (ARGUMENTS,)
    assert tree.containing("sglang", "Qwen3_5ForCausalLMMTP") == ()


def test_digests_of_folders_are_others(original: SourceTree, tree: OverlaidTree) -> None:
    assert tree.folder_digest("sglang") != original.folder_digest("sglang")
    assert tree.folder_state("sglang") != original.folder_state("sglang")
    assert OverlaidTree(original, {}).folder_digest("sglang") != tree.folder_digest("sglang")
