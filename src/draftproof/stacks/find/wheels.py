"""Wheels and source archives, on disk or on a server, turned into kept trees."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, cast

from draftproof.errors import EnvironmentProblem, StackError
from draftproof.stacks.find.archive import open_wheel, read_source_archive, read_wheel, wheel_members
from draftproof.stacks.find.index import IndexFile, local_path
from draftproof.stacks.find.kept_trees import KeptTree, Provenance, TreeStore
from draftproof.stacks.find.progress import FetchProgress
from draftproof.stacks.find.remote_file import RemoteFile
from draftproof.stacks.find.web import RangesNotServed, WebReader

MAX_DOWNLOAD_BYTES = 4 << 30
RECORD_CHECKED = "its members match its RECORD"
WHOLE_CHECKED = "its SHA-256 is the one that the index lists"
NOT_CHECKED = "the index lists no SHA-256 for it"


def keep_local_wheel(file: Path, key: str, store: TreeStore, version: str) -> KeptTree:
    """Reads a wheel or source archive on this machine.

    Raises:
        StackError: it is none, or is hostile.
        EnvironmentProblem: it cannot be read, or the cache cannot be written.
    """
    provenance = Provenance(file.name, str(file.parent), version, RECORD_CHECKED)
    with _opened(file) as stream:
        return store.add(key, _members(stream, file.name), provenance)


def keep_indexed_file(
    file: IndexFile, version: str, key: str, store: TreeStore, reader: WebReader, progress: FetchProgress
) -> KeptTree:
    """Reads a file that an index lists: only the parts that matter where the server serves ranges.

    Raises:
        StackError: it is not what the index lists, or is hostile.
        EnvironmentProblem: it cannot be fetched, or the cache cannot be written.
    """
    local = local_path(file.address)
    if local is not None:
        with _opened(local) as stream:
            return _keep_whole(file, version, key, store, stream)
    if file.name.endswith(".whl"):
        try:
            return _keep_ranges(file, version, key, store, reader, progress)
        except RangesNotServed as reason:
            step = f"{file.name}, whole ({reason})"
    else:
        step = f"{file.name}, whole (a source archive)"
    with tempfile.TemporaryFile() as stream:
        reader.download(file.address, stream, MAX_DOWNLOAD_BYTES, _steps(progress, step))
        return _keep_whole(file, version, key, store, stream)


def _keep_ranges(
    file: IndexFile, version: str, key: str, store: TreeStore, reader: WebReader, progress: FetchProgress
) -> KeptTree:
    with (
        RemoteFile(reader, file.address, file.size) as remote,
        open_wheel(cast(IO[bytes], remote), file.name) as archive,
    ):
        members = wheel_members(archive, file.name)
        # A member ends where the next one begins.
        starts = sorted({member.header_offset for member in archive.infolist()} | {archive.start_dir})
        following = dict(pairwise(starts))
        spans = [(member.header_offset, following[member.header_offset]) for member in members]
        remote.prefetch(spans, _steps(progress, f"{file.name}, source files only"))
        provenance = Provenance(file.name, file.listed_at, version, RECORD_CHECKED, file.yanked)
        return store.add(key, read_wheel(archive, members, file.name), provenance)


def _keep_whole(file: IndexFile, version: str, key: str, store: TreeStore, stream: IO[bytes]) -> KeptTree:
    if file.sha256:
        found = _sha256(stream)
        if found != file.sha256:
            raise StackError(
                f"{file.name} has SHA-256 {found[:12]}..., but {file.listed_at} lists {file.sha256[:12]}...",
                "Fetch it again, or ask who keeps the index.",
            )
    checked = WHOLE_CHECKED if file.sha256 else NOT_CHECKED
    stream.seek(0)
    provenance = Provenance(file.name, file.listed_at, version, checked, file.yanked)
    return store.add(key, _members(stream, file.name), provenance)


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    stream.seek(0)
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def _members(stream: IO[bytes], name: str) -> Iterator[tuple[str, bytes]]:
    if name.endswith(".tar.gz"):
        yield from read_source_archive(stream, name)
        return
    with open_wheel(stream, name) as archive:
        yield from read_wheel(archive, wheel_members(archive, name), name)


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror or error}") from error


def _steps(progress: FetchProgress, step: str) -> Callable[[int, int], None]:
    return lambda done, total: progress.advance(step, done, total)
