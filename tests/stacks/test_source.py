"""A tree of source files: what is read, and what is refused."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from draftproof.errors import SourceError
from draftproof.stacks import source
from draftproof.stacks.source import SourceTree
from tests.support.stack_wheels import SGLANG_FILES, write_files

MODEL = "sglang/srt/models/qwen3_5_mtp.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "tree", SGLANG_FILES)


@pytest.fixture
def tree(folder: Path) -> SourceTree:
    return SourceTree(folder)


def test_text_digest_and_syntax_of_a_file(tree: SourceTree) -> None:
    assert tree.text(MODEL) == SGLANG_FILES[MODEL]
    assert tree.digest(MODEL) == hashlib.sha256(SGLANG_FILES[MODEL].encode()).hexdigest()
    assert tree.syntax(MODEL).body[0].name == "Qwen3_5ForCausalLMMTP"  # type: ignore[attr-defined]


def test_listings_are_sorted_and_only_of_python_files(folder: Path) -> None:
    write_files(
        folder,
        {
            "sglang/srt/models/notes.txt": "",
            "sglang/srt/models/__pycache__/x.py": "",
            "sglang/srt/.hidden/x.py": "",
            "sglang/srt/models/deep/a.py": "",
        },
    )
    tree = SourceTree(folder)
    models = ("sglang/srt/models/__init__.py", MODEL)
    assert tree.files("sglang/srt/models") == models
    assert tree.walk("sglang/srt/models") == (models[0], "sglang/srt/models/deep/a.py", MODEL)
    assert tree.walk(".") == tree.walk("sglang")
    assert tree.files("sglang/nowhere") == ()


def test_has_tells_files_from_folders_and_from_nothing(tree: SourceTree) -> None:
    assert tree.has(MODEL)
    assert not tree.has("sglang/srt/models")
    assert not tree.has("sglang/srt/models/none.py")
    assert not tree.has("../tree/" + MODEL)


def test_containing_finds_words_without_parsing(folder: Path) -> None:
    write_files(folder, {"sglang/srt/broken.py": "def Qwen3_5ForCausalLMMTP(:"})
    found = SourceTree(folder).containing("sglang", "Qwen3_5ForCausalLMMTP")
    assert found == ("sglang/srt/broken.py", MODEL)


def test_a_byte_order_mark_is_no_part_of_the_text(folder: Path) -> None:
    (folder / MODEL).write_bytes(b"\xef\xbb\xbfx = 1\n")
    tree = SourceTree(folder)
    assert tree.text(MODEL) == "x = 1\n"
    assert tree.syntax(MODEL).body


def test_odd_escapes_in_the_stack_are_no_error_here(folder: Path) -> None:
    write_files(folder, {MODEL: "pattern = '\\d+'\nif 1 is 1: pass\n"})
    assert SourceTree(folder).syntax(MODEL).body


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x.py", "sglang/../../x.py", "sglang\\x.py", "a\0b"])
def test_only_relative_paths_inside_the_tree(tree: SourceTree, path: str) -> None:
    for look in (tree.text, tree.syntax, tree.digest, tree.files, tree.walk):
        with pytest.raises(SourceError):
            look(path)


def test_links_that_leave_the_tree_are_refused(folder: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "elsewhere", {"secret.py": "password = 1\n"})
    (folder / "sglang/file.py").symlink_to(tmp_path / "elsewhere/secret.py")
    (folder / "sglang/folder").symlink_to(tmp_path / "elsewhere")
    tree = SourceTree(folder)
    for path in ("sglang/file.py", "sglang/folder/secret.py"):
        assert not tree.has(path)
        with pytest.raises(SourceError, match="leaves"):
            tree.text(path)
    with pytest.raises(SourceError, match="leaves"):
        tree.files("sglang/folder")
    assert "sglang/file.py" not in tree.containing("sglang", "password")


def test_links_inside_the_tree_are_followed(folder: Path) -> None:
    (folder / "sglang/link.py").symlink_to(folder / MODEL)
    assert SourceTree(folder).text("sglang/link.py") == SGLANG_FILES[MODEL]


def test_a_root_that_is_a_link_is_fine(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert SourceTree(tmp_path / "link").text(MODEL) == SGLANG_FILES[MODEL]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"x = 1\nclass A(:\n", 2, "no valid Python"),
        (b"x = 1\n\ny = '\xff'\n", 3, "not UTF-8"),
        (b"x = 1\n\0\n", None, "null byte"),
        (b"x = " + b"(" * 5000 + b")" * 5000, None, "qwen3_5_mtp"),
        (b"x = " + b"-" * 3000 + b"1", None, "qwen3_5_mtp"),
        (b"x = " + b"+".join([b"y"] * 400), 1, "nested"),
        (b"x = " + b"9" * 5000, 1, "no valid Python"),
    ],
)
def test_a_broken_file_is_an_error_about_that_file_and_no_other(
    folder: Path, content: bytes, line: int | None, said: str
) -> None:
    (folder / MODEL).write_bytes(content)
    tree = SourceTree(folder)
    with pytest.raises(SourceError, match=said) as caught:
        tree.syntax(MODEL)
    assert caught.value.file == MODEL
    assert MODEL in caught.value.message
    assert line is None or caught.value.line == line
    assert tree.syntax("sglang/srt/server_args.py").body
    assert len(tree.digest(MODEL)) == 64


def test_a_file_that_is_absurdly_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_FILE_BYTES", 10)
    with pytest.raises(SourceError, match="more than 10 bytes"):
        SourceTree(folder).text(MODEL)


def test_an_absurd_number_of_files_is_not_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 2)
    with pytest.raises(SourceError, match="more than 2 files"):
        SourceTree(folder).walk("sglang")


def test_what_is_no_regular_file_is_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "sglang/pipe.py")
    tree = SourceTree(folder)
    assert not tree.has("sglang/pipe.py")
    with pytest.raises(SourceError, match="not a regular file"):
        tree.text("sglang/pipe.py")
    assert tree.containing("sglang", "ServerArgs") == ("sglang/srt/server_args.py",)


def test_names_that_are_no_text_are_left_out(folder: Path) -> None:
    (folder / "sglang" / os.fsdecode(b"\xff.py")).write_text("")
    assert all(path.isprintable() for path in SourceTree(folder).walk("sglang"))


def test_what_was_read_stays_as_it_was(tree: SourceTree, folder: Path) -> None:
    before = tree.digest(MODEL)
    write_files(folder, {MODEL: "changed = True\n"})
    assert tree.text(MODEL) == SGLANG_FILES[MODEL]
    assert tree.digest(MODEL) == before
    assert SourceTree(folder).digest(MODEL) != before


def test_threads_share_one_syntax_tree(tree: SourceTree) -> None:
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(tree.syntax(MODEL))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len({id(module) for module in seen}) == 1


def test_digest_and_state_of_a_folder_follow_its_files(folder: Path) -> None:
    models = "sglang/srt/models"

    def look() -> tuple[str, str]:
        tree = SourceTree(folder)
        return tree.folder_digest(models), tree.folder_state(models)

    first = look()
    assert look() == first
    write_files(folder, {"sglang/srt/elsewhere.py": ""})
    assert look() == first
    write_files(folder, {f"{models}/new.py": ""})
    second = look()
    write_files(folder, {f"{models}/new.py": "x"})
    third = look()
    for one, other in ((first, second), (second, third), (first, third)):
        assert one[0] != other[0]
        assert one[1] != other[1]
