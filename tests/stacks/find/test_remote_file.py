"""A file on a server, read in pieces: the bytes are the file's, and few of them are read in vain."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find import remote_file
from draftproof.stacks.find.pip_settings import PipSettings
from draftproof.stacks.find.remote_file import RemoteFile
from draftproof.stacks.find.web import RangesNotServed, WebReader
from tests.support.package_index import PackageIndex

SIZE = 200_000


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PackageIndex, str, bytes]]:
    """An index, the address of a file of `SIZE` bytes, and its content; pieces are small."""
    monkeypatch.setattr(remote_file, "TAIL_BYTES", 1_000)
    monkeypatch.setattr(remote_file, "BLOCK_BYTES", 4_000)
    monkeypatch.setattr(remote_file, "LARGEST_PIECE", 10_000)
    monkeypatch.setattr(remote_file, "WORTHWHILE_GAP", 100)
    content = random.Random(0).randbytes(SIZE)
    (tmp_path / "file-1.whl").write_bytes(content)
    with PackageIndex() as index:
        index.add(tmp_path / "file-1.whl")
        yield index, index.url.replace("/simple", "/files/file-1.whl"), content


def opened(address: str, size: int | None = SIZE) -> RemoteFile:
    return RemoteFile(WebReader(PipSettings(timeout=2)), address, size)


def nothing(done: int, total: int) -> None:
    assert 0 < done <= total


def test_any_read_gives_the_bytes_of_the_file(served: tuple[PackageIndex, str, bytes]) -> None:
    _, address, content = served
    choose = random.Random(1)
    with opened(address) as file:
        for _ in range(60):
            start, length = choose.randrange(SIZE), choose.randrange(9_000)
            file.seek(start)
            assert file.read(length) == content[start : start + length]
        file.seek(-10, io.SEEK_END)
        assert file.read() == content[-10:]
        assert file.read(5) == b""
        assert file.tell() == SIZE


def test_spans_that_were_asked_for_are_read_in_few_requests(served: tuple[PackageIndex, str, bytes]) -> None:
    index, address, content = served
    with opened(address) as file:
        file.prefetch([(0, 50), (100, 200), (90_000, 90_010), (150_000, 165_000), (199_500, SIZE)], nothing)
        ranges = {request.range for request in index.requests}
        assert ranges == {
            "bytes=199000-199999",  # the end of the file, at once
            "bytes=0-199",  # two spans with a small gap between them
            "bytes=90000-90009",
            "bytes=150000-159999",  # a long span, in two pieces
            "bytes=160000-164999",
        }
        for start, end in ((0, 200), (90_000, 90_010), (150_000, 165_000), (199_500, SIZE)):
            file.seek(start)
            assert file.read(end - start) == content[start:end]
        assert len(index.requests) == len(ranges)


def test_the_server_says_the_size_when_the_index_does_not(served: tuple[PackageIndex, str, bytes]) -> None:
    _, address, _ = served
    assert opened(address, None).size == SIZE


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 5_000])
def test_a_file_of_another_size_than_listed(served: tuple[PackageIndex, str, bytes], size: int) -> None:
    _, address, _ = served
    with pytest.raises(RangesNotServed):
        opened(address, size)


def test_no_more_is_read_than_makes_sense(
    served: tuple[PackageIndex, str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address, _ = served
    monkeypatch.setattr(remote_file, "MAX_READ_BYTES", 20_000)
    with opened(address) as file:
        with pytest.raises(EnvironmentProblem, match="more than 20000 bytes"):
            file.prefetch([(0, 50_000)], nothing)
        with pytest.raises(EnvironmentProblem, match="more than 20000 bytes"):
            file.read(50_000)
