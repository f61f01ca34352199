"""Hostile and broken archives: one clear error each, and nothing of them is kept."""

from __future__ import annotations

import io
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from draftproof.errors import StackError
from draftproof.stacks.find import archive
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.request import parse_request
from draftproof.stacks.stack import Stack
from tests.support.stack_wheels import SGLANG_FILES, VLLM_FILES, wheel_files, write_wheel


@pytest.fixture
def find(tmp_path: Path) -> Callable[[Path], Stack]:
    """Finds the stack in a wheel file, with a cache of its own."""
    environment = {"DRAFTPROOF_CACHE": str(tmp_path / "cache")}
    return lambda file: StackFinder(environment).find(parse_request(str(file)))


def refused(find: Callable[[Path], Stack], file: Path) -> str:
    """The one-line message of the error."""
    with pytest.raises(StackError) as caught:
        find(file)
    assert not list(file.parent.glob("cache/**/*.py"))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4
    return str(caught.value)


def rewritten(file: Path, change: Callable[[zipfile.ZipInfo, bytes], bytes | None]) -> Path:
    """The wheel again, each member passed through `change`; None leaves it out."""
    with zipfile.ZipFile(file) as old:
        members = [(member, old.read(member)) for member in old.infolist()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for member, content in members:
            changed = change(member, content)
            if changed is not None:
                new.writestr(member, changed)
    return file


def test_a_sound_wheel_file(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "vllm", "0.33.0", VLLM_FILES)
    stack = find(file)
    assert stack.label == "vLLM 0.33.0"
    assert stack.origin == f"wheel file {file}"
    assert stack.tree.has("vllm/model_executor/models/registry.py")
    assert not (stack.tree.root / "vllm/_C.abi3.so").exists()
    assert find(file).tree.root == stack.tree.root


def test_another_wheel_of_the_same_name_is_read_anew(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    first = find(write_wheel(tmp_path, "vllm", "0.33.0", VLLM_FILES))
    changed = {**VLLM_FILES, "vllm/engine/arg_utils.py": "class Other:\n    pass\n"}
    second = find(write_wheel(tmp_path, "vllm", "0.33.0", changed))
    assert second.tree.text("vllm/engine/arg_utils.py") == changed["vllm/engine/arg_utils.py"]
    assert first.tree.root != second.tree.root


def test_the_name_of_a_wheel_says_what_it_is(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "other", "1.0", {"other/__init__.py": ""})
    assert "no wheel of SGLang or vLLM by its name" in refused(find, file)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/evil.py",
        "sglang/../../evil.py",
        "sglang\\..\\evil.py",
        "C:/evil.py",
        "sglang//evil.py",
        "./sglang/evil.py",
        "sglang/evil\n.py",
    ],
)
def test_names_that_leave_the_folder(find: Callable[[Path], Stack], tmp_path: Path, name: str) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES, **{name: b"x = 1\n"})
    assert "which no wheel has" in refused(find, file)
    assert not list(tmp_path.rglob("evil*"))


def test_links(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    link = zipfile.ZipInfo("sglang/link.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(file, "a") as stream:
        stream.writestr(link, "/etc/passwd")
    assert "holds a link ('sglang/link.py')" in refused(find, file)


def test_a_member_that_is_there_twice(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    with zipfile.ZipFile(file, "a") as stream, pytest.warns(UserWarning, match="Duplicate"):
        stream.writestr("sglang/__init__.py", "x = 1\n")
    assert "holds sglang/__init__.py twice" in refused(find, file)


def test_a_member_that_declares_too_much(
    find: Callable[[Path], Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 10_000)
    bomb = {"sglang/bomb.py": b" " * 10_001}
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES, **bomb)
    assert "sglang/bomb.py" in refused(find, file)


def test_members_that_together_declare_too_much(
    find: Callable[[Path], Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_KEPT_BYTES", 100)
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    assert "more than 100" in refused(find, file)


def test_a_member_that_unpacks_to_more_than_it_declares(
    find: Callable[[Path], Stack], tmp_path: Path
) -> None:
    """The size in the directory is a lie; the data behind it is a megabyte of nothing."""
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES, **{"sglang/bomb.py": b"\0" * (1 << 20)})
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"sglang/bomb.py") - 46
    assert content[entry : entry + 4] == b"PK\x01\x02"
    struct.pack_into("<L", content, entry + 24, 100)
    file.write_bytes(content)
    assert "sglang/bomb.py" in refused(find, file)


def test_too_many_members(
    find: Callable[[Path], Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    assert "more than 3" in refused(find, write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES))


def test_an_encrypted_member(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"sglang/__init__.py") - 46
    content[entry + 8] |= 1
    file.write_bytes(content)
    assert "is encrypted" in refused(find, file)


@pytest.mark.parametrize("kept", [0, 10, 1 << 20, -30, -200])
def test_a_wheel_that_is_cut_short(find: Callable[[Path], Stack], tmp_path: Path, kept: int) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    file.write_bytes(file.read_bytes()[:kept])
    assert "no readable wheel" in refused(find, file)


def test_a_member_with_damaged_bytes(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as stream:
        start = stream.getinfo("sglang/srt/server_args.py").header_offset
    content[start + 30 + len("sglang/srt/server_args.py") + 3] ^= 0xFF
    file.write_bytes(content)
    assert "sglang/srt/server_args.py" in refused(find, file)


def test_a_member_that_is_not_what_the_record_says(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    changed = "sglang/srt/server_args.py"
    rewritten(file, lambda member, content: b"x = 1\n" if member.filename == changed else content)
    assert f"{changed} in {file.name} is not what its RECORD says" in refused(find, file)


def test_a_wheel_without_a_record(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    file = write_wheel(tmp_path, "sglang", "0.5.12", SGLANG_FILES)
    rewritten(file, lambda member, content: None if member.filename.endswith("/RECORD") else content)
    assert "has no RECORD" in refused(find, file)


@pytest.mark.parametrize("seed", range(4))
def test_arbitrary_damage_is_one_kind_of_error(seed: int) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as stream:
        for path, text in wheel_files("sglang", "0.5.12", SGLANG_FILES).items():
            stream.writestr(path, text)
    choose = random.Random(seed)
    refusals = 0
    for _ in range(150):
        content = bytearray(whole.getvalue())
        for _ in range(choose.choice((1, 5, 20))):
            content[choose.randrange(len(content))] = choose.randrange(256)
        try:
            with archive.open_wheel(io.BytesIO(bytes(content)), "a wheel") as opened:
                list(archive.read_wheel(opened, archive.wheel_members(opened, "a wheel"), "a wheel"))
        except StackError as error:
            refusals += "\n" not in str(error)
    assert refusals > 100


def write_tar(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as stream:
        for member, content in members:
            member.size = len(content)
            stream.addfile(member, io.BytesIO(content))
    return file


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "sglang-0.5.12/../../evil.py"])
def test_source_archives_are_held_to_the_same_names(
    find: Callable[[Path], Stack], tmp_path: Path, name: str
) -> None:
    file = write_tar(tmp_path / "sglang-0.5.12.tar.gz", (tarfile.TarInfo(name), b"x = 1\n"))
    assert "which no wheel has" in refused(find, file)


def test_links_in_source_archives_are_left_out(find: Callable[[Path], Stack], tmp_path: Path) -> None:
    link = tarfile.TarInfo("sglang-0.5.12/sglang/link.py")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    files = [(tarfile.TarInfo(f"sglang-0.5.12/{path}"), text.encode()) for path, text in SGLANG_FILES.items()]
    stack = find(write_tar(tmp_path / "sglang-0.5.12.tar.gz", (link, b""), *files))
    assert stack.tree.has("sglang/srt/server_args.py")
    assert not (stack.tree.root / "sglang/link.py").is_symlink()


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08broken"])
def test_what_is_no_source_archive(find: Callable[[Path], Stack], tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "sglang-0.5.12.tar.gz"
    file.write_bytes(content)
    assert "no readable source archive" in refused(find, file)


def test_a_source_archive_that_unpacks_to_too_much(
    find: Callable[[Path], Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 1_000_000)
    bomb = (tarfile.TarInfo("sglang-0.5.12/bomb.bin"), b"\0" * 2_000_000)
    assert "absurd" in refused(find, write_tar(tmp_path / "sglang-0.5.12.tar.gz", bomb))


def test_the_record_names_source_files_only() -> None:
    record = wheel_files("sglang", "0.5.12", SGLANG_FILES)["sglang-0.5.12.dist-info/RECORD"]
    assert archive.parse_record(record.encode(), "a wheel").keys() == SGLANG_FILES.keys()
