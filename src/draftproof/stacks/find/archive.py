"""The .py files and metadata of a wheel or source archive, which is hostile until checked.

Names that leave the folder, links, encryption, absurd counts and sizes (as declared, and as they turn out)
are refused with one error that names the archive. What a wheel's RECORD says about a member is checked.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from draftproof.errors import StackError
from draftproof.stacks.source import MAX_FILE_BYTES

MAX_MEMBERS = 100_000
MAX_KEPT_BYTES = 512 << 20
"""The .py files of the largest stack seen so far have 68 MB."""
MAX_UNPACKED_BYTES = 8 << 30
"""Of a source archive, all members together: it has to be decompressed to be read."""

_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What the standard library raises for archives with arbitrary bytes in them."""


def wheel_members(archive: zipfile.ZipFile, label: str) -> tuple[zipfile.ZipInfo, ...]:
    """The members that are kept: .py files and the wheel's metadata, in the order of the file.

    Raises:
        StackError: the archive is none that pip would have built.
    """
    everything = archive.infolist()
    if len(everything) > MAX_MEMBERS:
        raise StackError(f"{label} has {len(everything)} members, more than {MAX_MEMBERS}")
    names: set[str] = set()
    kept: list[zipfile.ZipInfo] = []
    for member in everything:
        _require_harmless(member.filename, label)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise StackError(f"{label} holds a link ({member.filename!r}), which a wheel never does")
        if member.is_dir() or not _is_source(member.filename):
            continue
        if member.filename in names:
            raise StackError(f"{label} holds {member.filename} twice")
        if member.flag_bits & 1:
            raise StackError(f"{label} is encrypted")
        names.add(member.filename)
        kept.append(member)
    _require_bounded([(member.filename, member.file_size) for member in kept], label)
    return tuple(sorted(kept, key=lambda member: member.header_offset))


def open_wheel(file: IO[bytes], label: str) -> zipfile.ZipFile:
    """A wheel's directory; StackError when it has none that can be read."""
    try:
        return zipfile.ZipFile(file)
    except _BROKEN as error:
        raise StackError(
            f"{label} is no readable wheel: {error}", "It may be cut short; fetch it again."
        ) from error


def read_wheel(
    archive: zipfile.ZipFile, members: tuple[zipfile.ZipInfo, ...], label: str
) -> Iterator[tuple[str, bytes]]:
    """Name and content of the kept members; the wheel's RECORD is checked on the way.

    Raises:
        StackError: a member is not what its own header or the RECORD says, or one that is listed is missing.
    """
    record = _record(archive, members, label)
    missing = sorted(record.keys() - {member.filename for member in members})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StackError(f"{label} lacks {missing[0]}{more}, which its RECORD lists", "Fetch it again.")
    for member in members:
        content = _read_member(archive, member, label)
        expected = record.get(member.filename)
        if expected and _record_digest(content) != expected:
            raise StackError(f"{member.filename} in {label} is not what its RECORD says", "Fetch it again.")
        yield member.filename, content


def read_source_archive(file: IO[bytes], label: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of the .py files and of PKG-INFO and pyproject.toml of a .tar.gz.

    Raises:
        StackError: it is none, or holds what a source archive never does.
    """
    total = 0
    try:
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            for number, member in enumerate(archive, start=1):
                _require_harmless(member.name, label)
                if number > MAX_MEMBERS or member.offset_data + member.size > MAX_UNPACKED_BYTES:
                    raise StackError(f"{label} unpacks to an absurd number of files or bytes")
                if not member.isreg() or not (_is_source(member.name) or _is_project_file(member.name)):
                    continue
                total += member.size
                _require_bounded([(member.name, member.size)], label, total)
                stream = archive.extractfile(member)
                yield member.name, stream.read() if stream is not None else b""
    except _BROKEN as error:
        raise StackError(f"{label} is no readable source archive: {error}", "Fetch it again.") from error


def _is_source(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".py" or path.parts[0].endswith(".dist-info")


def _is_project_file(name: str) -> bool:
    """At the top of a source archive (NAME-VERSION/), or in SGLang's python/ below."""
    path = PurePosixPath(name)
    return path.name in ("PKG-INFO", "pyproject.toml") and len(path.parts) <= 3


def _require_harmless(name: str, label: str) -> None:
    parts = name.rstrip("/").split("/")
    strange = any(part in ("", ".", "..") for part in parts) and name != "./"
    if strange or "\\" in name or ":" in parts[0] or not name.isprintable() or len(name) > 1000:
        raise StackError(f"{label} holds a member with the name {name[:80]!r}, which no wheel has")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise StackError(f"{label} holds a member whose name is no text") from error


def _require_bounded(sizes: list[tuple[str, int]], label: str, total: int | None = None) -> None:
    for name, size in sizes:
        if size > MAX_FILE_BYTES:
            raise StackError(f"{name} in {label} has {size} bytes, more than {MAX_FILE_BYTES}")
    total = sum(size for _, size in sizes) if total is None else total
    if total > MAX_KEPT_BYTES:
        raise StackError(f"the source files in {label} have {total} bytes, more than {MAX_KEPT_BYTES}")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> bytes:
    """Never more than the member declares, whatever is packed in it."""
    try:
        with archive.open(member) as stream:
            content = stream.read(member.file_size + 1)
    except _BROKEN as error:
        raise StackError(f"{member.filename} in {label} cannot be unpacked: {error}") from error
    if len(content) != member.file_size:
        raise StackError(f"{member.filename} in {label} does not have the size that it declares")
    return content


def _record(archive: zipfile.ZipFile, members: tuple[zipfile.ZipInfo, ...], label: str) -> dict[str, str]:
    """Digest as RECORD writes it, or "", by the names of the .py files that it lists."""
    for member in members:
        path = PurePosixPath(member.filename)
        if path.name == "RECORD" and path.parent.name.endswith(".dist-info") and len(path.parts) == 2:
            return parse_record(_read_member(archive, member, label), label)
    raise StackError(f"{label} has no RECORD, which every wheel has", "Fetch it again.")


def parse_record(content: bytes, label: str) -> dict[str, str]:
    """Of an installed or packed wheel's RECORD: the .py files with their digests ("sha256=…" or "").

    Raises:
        StackError: it is no such file.
    """
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise StackError(f"the RECORD of {label} cannot be read: {error}") from error
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows if row and row[0].endswith(".py")}


def _record_digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest}"
