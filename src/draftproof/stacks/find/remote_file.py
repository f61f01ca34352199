"""A file on a server as a seekable one, of which only what is needed is read."""

from __future__ import annotations

import bisect
import io
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find.pip_settings import without_password
from draftproof.stacks.find.web import Piece, RangesNotServed, WebReader

TAIL_BYTES = 1 << 20
"""Covers the directory of most wheels: the largest seen so far has 0.7 MB."""
BLOCK_BYTES = 1 << 20
LARGEST_PIECE = 8 << 20
WORTHWHILE_GAP = 1 << 18
"""Bytes that are rather read in vain than skipped with another request."""
CONCURRENT_READS = 6
MAX_READ_BYTES = 512 << 20
"""Kept in memory at most; the source of the largest stack seen so far needs 19 MB."""


class RemoteFile(io.RawIOBase):
    """Read-only and seekable.

    Args:
        reader: makes the requests.
        address: of the file.
        size: in bytes, when the index says so.

    Raises:
        RangesNotServed: the server does not serve ranges, or the file changes while it is read.
        EnvironmentProblem: it cannot be reached, or more than `MAX_READ_BYTES` would have to be read.
    """

    def __init__(self, reader: WebReader, address: str, size: int | None) -> None:
        super().__init__()
        self._reader = reader
        self._address = address
        if size == 0:
            raise RangesNotServed("the file is empty")
        if size is not None:
            tail = reader.piece(address, f"{max(size - TAIL_BYTES, 0)}-{size - 1}", TAIL_BYTES)
        else:
            tail = reader.piece(address, f"-{TAIL_BYTES}", TAIL_BYTES)
        self._size = tail.total
        if size not in (None, self._size) or tail.start + len(tail.content) != self._size:
            raise RangesNotServed("the server's file has another size than the index says")
        self._pieces = [tail]
        self._position = 0

    @property
    def size(self) -> int:
        """Of the whole file, in bytes."""
        return self._size

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As for any file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fills as much of `target` as one known piece holds; 0 at the end of the file."""
        if self._position >= self._size:
            return 0
        piece = self._piece_at(self._position)
        start = self._position - piece.start
        content = piece.content[start : start + len(target)]
        target[: len(content)] = content
        self._position += len(content)
        return len(content)

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end of the file."""
        left = self._size - self._position if size < 0 else size
        parts: list[bytes] = []
        while left > 0 and (part := super().read(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def prefetch(self, spans: Iterable[tuple[int, int]], progress: Callable[[int, int], None]) -> None:
        """Reads the (start, end) spans in few requests, several at a time.

        Args:
            spans: sorted by start.
            progress: receives bytes read and bytes that will be read.
        """
        wanted = list(_requests(self._missing(spans)))
        total = sum(end - start for start, end in wanted)
        self._require_room(total)
        done = 0
        with ThreadPoolExecutor(CONCURRENT_READS) as pool:
            for piece in pool.map(lambda span: self._fetch(*span), wanted):
                self._keep(piece)
                done += len(piece.content)
                progress(done, total)

    def _missing(self, spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        tail = self._pieces[-1].start
        clipped = ((max(start, 0), min(end, tail)) for start, end in spans)
        return ((start, end) for start, end in clipped if start < end)

    def _piece_at(self, position: int) -> Piece:
        index = bisect.bisect_right(self._pieces, position, key=lambda piece: piece.start) - 1
        if index >= 0 and position < self._pieces[index].start + len(self._pieces[index].content):
            return self._pieces[index]
        following = self._pieces[index + 1].start if index + 1 < len(self._pieces) else self._size
        self._require_room(BLOCK_BYTES)
        piece = self._fetch(position, min(position + BLOCK_BYTES, following))
        self._keep(piece)
        return piece

    def _fetch(self, start: int, end: int) -> Piece:
        piece = self._reader.piece(self._address, f"{start}-{end - 1}", end - start)
        if piece.total != self._size:
            raise RangesNotServed("the server's file changes while it is read")
        return piece

    def _require_room(self, more: int) -> None:
        if sum(len(piece.content) for piece in self._pieces) + more > MAX_READ_BYTES:
            place = without_password(self._address)
            raise EnvironmentProblem(f"more than {MAX_READ_BYTES} bytes of {place} would have to be read")

    def _keep(self, piece: Piece) -> None:
        bisect.insort(self._pieces, piece, key=lambda kept: kept.start)


def _requests(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Spans with their small gaps closed, cut where they are long."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] <= WORTHWHILE_GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    for start, end in merged:
        for cut in range(start, end, LARGEST_PIECE):
            yield cut, min(cut + LARGEST_PIECE, end)
