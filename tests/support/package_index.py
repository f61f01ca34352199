"""A stand-in for a package index on 127.0.0.1, with the faults that real ones have.

    with PackageIndex() as index:
        index.add(wheel)
        index.environment(tmp_path)          # variables that make pip, and draftproof, use it
        index.bytes_served

Listings are JSON (PEP 691) for those who ask for it, else HTML (PEP 503).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class IndexedFile:
    """A file of the index, with what the listing says about it."""

    source: Path
    sha256: str
    yanked: str | None


@dataclass(frozen=True)
class IndexRequest:
    """One request: path, asked range, status."""

    path: str
    range: str | None
    status: int


@dataclass
class PackageIndex:
    """The server; start and stop it with `with`.

    Attributes:
        serves_json: False lists in HTML whatever is asked for.
        listing: sent instead of a true JSON listing.
        lists_digests: False says neither digest nor size.
        honours_ranges: False answers a range request with the whole file.
        range_shift: answers a range request with the range that many bytes further on.
        cut: ends the connection after that many bytes of a file.
        delay: seconds before each answer.
        password: "user:password" that every request must carry.
        requests: everything answered so far.
        bytes_served: of files.
    """

    serves_json: bool = True
    listing: str | None = None
    lists_digests: bool = True
    honours_ranges: bool = True
    range_shift: int = 0
    cut: int | None = None
    delay: float = 0.0
    password: str = ""
    requests: list[IndexRequest] = field(default_factory=list)
    bytes_served: int = 0
    _files: dict[str, IndexedFile] = field(default_factory=dict)
    _failures: list[int] = field(default_factory=list)
    _server: _Server | None = None

    def __enter__(self) -> Self:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The simple index."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of a process that knows this index and nothing else; the cache is below the folder."""
        return {
            "DRAFTPROOF_CACHE": str(folder / "cache"),
            "HOME": str(folder),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": self.url,
            "PIP_TIMEOUT": "2",
        }

    def add(self, source: Path, *, sha256: str | None = None, yanked: str | None = None) -> None:
        """Lists a file; `sha256` is a lie about it."""
        digest = hashlib.sha256(source.read_bytes()).hexdigest() if sha256 is None else sha256
        self._files[source.name] = IndexedFile(source, digest, yanked)

    def fail_next(self, status: int, count: int = 1) -> None:
        """Answers the next requests with an error."""
        self._failures += [status] * count

    def next_failure(self) -> int | None:
        """Takes one planned failure."""
        return self._failures.pop(0) if self._failures else None

    def listed(self, project: str) -> dict[str, IndexedFile]:
        """The files of a project."""
        return {name: file for name, file in self._files.items() if name.startswith(f"{project}-")}

    def file(self, name: str) -> IndexedFile | None:
        """The file of that name."""
        return self._files.get(name)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, state: PackageIndex) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it)
        """Says nothing: tests read `requests`."""

    def do_GET(self) -> None:
        state = self.server.state
        time.sleep(state.delay)
        failure = state.next_failure()
        token = base64.b64encode(state.password.encode()).decode()
        if failure is not None:
            self._send(HTTPStatus(failure), {}, b"")
        elif state.password and self.headers.get("Authorization") != f"Basic {token}":
            self._send(HTTPStatus.UNAUTHORIZED, {}, b"")
        elif match := re.fullmatch(r"/simple/([^/]+)/", self.path):
            self._send_listing(match[1])
        elif (file := state.file(self.path.removeprefix("/files/"))) is not None:
            self._send_file(file)
        else:
            self._send(HTTPStatus.NOT_FOUND, {}, b"")

    def _send_listing(self, project: str) -> None:
        state = self.server.state
        files = state.listed(project)
        if not files:
            self._send(HTTPStatus.NOT_FOUND, {}, b"")
        elif state.serves_json and JSON in (self.headers.get("Accept") or ""):
            listed = [self._json_entry(name, file) for name, file in files.items()]
            true = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": listed})
            body = true if state.listing is None else state.listing
            self._send(HTTPStatus.OK, {"Content-Type": JSON}, body.encode())
        else:
            links = "".join(self._html_entry(name, file) for name, file in files.items())
            body = f"<!DOCTYPE html><html><body>{links}</body></html>"
            self._send(HTTPStatus.OK, {"Content-Type": "text/html; charset=utf-8"}, body.encode())

    def _json_entry(self, name: str, file: IndexedFile) -> dict[str, object]:
        entry: dict[str, object] = {"filename": name, "url": f"../../files/{name}", "hashes": {}}
        if self.server.state.lists_digests:
            entry |= {"hashes": {"sha256": file.sha256}, "size": file.source.stat().st_size}
        entry["yanked"] = False if file.yanked is None else (file.yanked or True)
        return entry

    def _html_entry(self, name: str, file: IndexedFile) -> str:
        digest = f"#sha256={file.sha256}" if self.server.state.lists_digests else ""
        yanked = "" if file.yanked is None else f' data-yanked="{file.yanked}"'
        return f'<a href="/files/{name}{digest}"{yanked}>{name}</a>\n'

    def _send_file(self, file: IndexedFile) -> None:
        state = self.server.state
        content = file.source.read_bytes()
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if asked is None or not state.honours_ranges:
            self._send(HTTPStatus.OK, {}, content)
            return
        first, last = asked.groups()
        start = int(first) if first else max(len(content) - int(last), 0)
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        start, end = start + state.range_shift, min(end + state.range_shift, len(content))
        span = {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}
        self._send(HTTPStatus.PARTIAL_CONTENT, span, content[start:end])

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: bytes) -> None:
        state = self.server.state
        state.requests.append(IndexRequest(self.path, self.headers.get("Range"), int(status)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/files/"):
            if state.cut is not None and len(body) > state.cut:
                body = body[: state.cut]
                self.close_connection = True
            state.bytes_served += len(body)
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
