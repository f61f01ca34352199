"""A stand-in for the model hub on 127.0.0.1, close enough for huggingface_hub and for range reads.

    with HubServer() as hub:
        repository = hub.add("someone/model", folder)
        HfApi(endpoint=hub.url).model_info("someone/model", files_metadata=True)
        assert hub.bytes_served < 1000

Like the real hub it redirects weight files to another address (here a path below /cdn/), reports their size
and etag before the redirect, answers a missing repository with 401, and a gated one's files with 401 or 403.
Files are read at the asked range only, so sparse files of any size can be served.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

_CHUNK = 1 << 20
_LARGE = (".safetensors", ".bin", ".gguf", ".pt")


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: its path in the repository, place on disk, size and etag."""

    path: str
    source: Path
    size: int
    etag: str
    large: bool


@dataclass(frozen=True)
class HubRepository:
    """A repository as the server knows it.

    Attributes:
        name: "owner/model".
        commit: 40 hex digits; the only revision, which `branches` point at.
        files: by their path.
        branches: names that resolve to the commit.
        token: a request without it is told that the repository does not exist (private).
        gated: files need a token that is in `allowed`; the listing is public.
        allowed: tokens that were granted access to a gated repository.
    """

    name: str
    commit: str
    files: dict[str, HubFile]
    branches: tuple[str, ...] = ("main",)
    token: str | None = None
    gated: bool = False
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubRequest:
    """One answered request: method, path, asked range, status, and bytes of body sent."""

    method: str
    path: str
    range: str | None
    status: int
    sent: int


@dataclass
class HubServer:
    """The server; start and stop it with `with`.

    Attributes:
        requests: everything answered so far, in order.
        honours_ranges: False answers a range request with the whole file, as some proxies do.
    """

    requests: list[HubRequest] = field(default_factory=list)
    honours_ranges: bool = True
    _repositories: dict[str, HubRepository] = field(default_factory=dict)
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
        """What HF_ENDPOINT is set to."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def bytes_served(self) -> int:
        """Bytes of all bodies so far, API answers included."""
        return sum(request.sent for request in self.requests)

    def add(
        self,
        name: str,
        folder: Path,
        *,
        branches: tuple[str, ...] = ("main",),
        token: str | None = None,
        gated: bool = False,
        allowed: tuple[str, ...] = (),
    ) -> HubRepository:
        """Serves a folder as a repository; arguments as the attributes of `HubRepository`."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {entry.path: entry for entry in (_hub_file(path, folder) for path in paths)}
        digest = "".join(f"{name}{entry.path}{entry.etag}" for entry in files.values())
        commit = hashlib.sha1(digest.encode(), usedforsecurity=False).hexdigest()
        repository = HubRepository(name, commit, files, branches, token, gated, allowed)
        self._repositories[name] = repository
        return repository

    def fail_next(self, status: int, count: int = 1) -> None:
        """Answers the next `count` requests with an error status (429, 503, ...)."""
        self._failures += [status] * count

    def find(self, name: str) -> HubRepository | None:
        """The repository of that name."""
        return self._repositories.get(name)

    def next_failure(self) -> int | None:
        """Takes one planned failure."""
        return self._failures.pop(0) if self._failures else None


class _Refusal(Exception):
    """An error answer: status, the hub's error code, message."""

    def __init__(self, status: HTTPStatus, code: str | None, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Server(ThreadingHTTPServer):
    """The socket; knows the state that its handlers answer from."""

    daemon_threads = True

    def __init__(self, state: HubServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    _api = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?$")
    _resolve = re.compile(r"/(?:cdn/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it)
        """Says nothing: tests read `requests`."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        failure = self.server.state.next_failure()
        try:
            if failure is not None:
                raise _Refusal(HTTPStatus(failure), None, "planned failure")
            self._route(body)
        except _Refusal as refusal:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
            self._send(refusal.status, {key: value for key, value in headers.items() if value}, b"{}")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, body: str) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        if match := self._api.match(path):
            name, kind, revision, below = match.groups()
            repository = self._repository(name, revision)
            if kind == "tree":
                self._send_json(list(_tree(repository, below or "", _is_set(url.query, "recursive"))))
            elif kind == "paths-info":
                wanted = _wanted_paths(body)
                self._send_json([entry for entry in _tree(repository, "", True) if entry["path"] in wanted])
            else:
                self._send_json(_model_info(repository, _is_set(url.query, "blobs")))
        elif match := self._resolve.match(path):
            name, revision, file = match.groups()
            self._send_file(self._repository(name, revision), file, is_target=path.startswith("/cdn/"))
        else:
            raise _Refusal(HTTPStatus.NOT_FOUND, None, f"no such address: {path}")

    def _repository(self, name: str, revision: str | None) -> HubRepository:
        repository = self.server.state.find(name)
        if repository is None or repository.token not in (None, self._token()):
            status = HTTPStatus.NOT_FOUND if self._token() else HTTPStatus.UNAUTHORIZED
            raise _Refusal(status, "RepoNotFound", "Repository not found")
        if revision not in (None, repository.commit, *repository.branches):
            raise _Refusal(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository

    def _send_file(self, repository: HubRepository, path: str, *, is_target: bool) -> None:
        name = repository.name
        # The address behind the redirect is signed on the real hub: no token is asked for again.
        if repository.gated and not is_target and self._token() not in repository.allowed:
            status = HTTPStatus.FORBIDDEN if self._token() else HTTPStatus.UNAUTHORIZED
            raise _Refusal(status, "GatedRepo", f"Access to model {name} is restricted")
        entry = repository.files.get(path)
        if entry is None:
            raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", f"Entry not found: {path}")
        headers = {"X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes", "ETag": f'"{entry.etag}"'}
        if entry.large and not is_target:
            address = f"{self.server.state.url}/cdn/{name}/resolve/{repository.commit}/{quote(path)}"
            linked = {"X-Linked-Size": str(entry.size), "X-Linked-ETag": f'"{entry.etag}"'}
            self._send(HTTPStatus.FOUND, headers | linked | {"Location": address}, b"")
            return
        start, end = self._range(entry.size)
        status = HTTPStatus.OK if (start, end) == (0, entry.size) else HTTPStatus.PARTIAL_CONTENT
        if status is HTTPStatus.PARTIAL_CONTENT:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
        self._stream(status, headers, entry.source, (start, end))

    def _range(self, size: int) -> tuple[int, int]:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if asked is None or not self.server.state.honours_ranges:
            return 0, size
        first, last = asked.groups()
        if not first:
            return max(size - int(last), 0), size
        if int(first) >= size:
            raise _Refusal(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, None, "range outside the file")
        return int(first), min(int(last) + 1, size) if last else size

    def _token(self) -> str | None:
        header = self.headers.get("Authorization") or ""
        return header.removeprefix("Bearer ") or None

    def _send_json(self, content: object) -> None:
        self._send(HTTPStatus.OK, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: bytes) -> None:
        self._start(status, headers, len(body))
        sent = 0 if self.command == "HEAD" else len(body)
        # Recorded before the client can have the last byte, so that a test never reads a count too early.
        self._record(status, sent)
        self.wfile.write(body[:sent])

    def _stream(
        self, status: HTTPStatus, headers: dict[str, str], source: Path, span: tuple[int, int]
    ) -> None:
        start, end = span
        self._start(status, headers, end - start)
        position = self._record(status, 0)
        left = 0 if self.command == "HEAD" else end - start
        with source.open("rb") as file:
            file.seek(start)
            while left:
                chunk = file.read(min(_CHUNK, left))
                left -= len(chunk)
                requests = self.server.state.requests
                requests[position] = replace(requests[position], sent=end - start - left)
                self.wfile.write(chunk)

    def _start(self, status: HTTPStatus, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _record(self, status: HTTPStatus, sent: int) -> int:
        """Notes the answer; returns its place in `requests`."""
        request = HubRequest(self.command, self.path, self.headers.get("Range"), int(status), sent)
        with self.server.lock:
            self.server.state.requests.append(request)
            return len(self.server.state.requests) - 1


def _hub_file(path: Path, folder: Path) -> HubFile:
    """Small files have git's blob id as etag, large ones a made-up one: hashing sparse files is slow."""
    relative, size, large = path.relative_to(folder).as_posix(), path.stat().st_size, path.suffix in _LARGE
    if large:
        etag = hashlib.sha256(f"{relative}{size}".encode()).hexdigest()
    else:
        content = path.read_bytes()
        etag = hashlib.sha1(b"blob %d\0" % size + content, usedforsecurity=False).hexdigest()
    return HubFile(relative, path, size, etag, large)


def _model_info(repository: HubRepository, with_sizes: bool) -> dict[str, Any]:
    siblings: list[dict[str, Any]] = []
    for entry in repository.files.values():
        sibling: dict[str, Any] = {"rfilename": entry.path}
        if with_sizes:
            sibling |= {"size": entry.size, "blobId": entry.etag[:40]}
            if entry.large:
                sibling["lfs"] = {"sha256": entry.etag, "size": entry.size, "pointerSize": 135}
        siblings.append(sibling)
    return {
        "_id": repository.commit[:24],
        "id": repository.name,
        "modelId": repository.name,
        "sha": repository.commit,
        "private": repository.token is not None,
        "gated": "manual" if repository.gated else False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "lastModified": "2026-01-01T00:00:00.000Z",
        "siblings": siblings,
    }


def _tree(repository: HubRepository, below: str, recursive: bool) -> Iterator[dict[str, Any]]:
    folders: set[str] = set()
    prefix = f"{below}/" if below else ""
    for entry in repository.files.values():
        if not entry.path.startswith(prefix):
            continue
        parts = entry.path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
            folder = prefix + "/".join(parts[:depth])
            if folder not in folders:
                folders.add(folder)
                yield {"type": "directory", "oid": repository.commit, "size": 0, "path": folder}
        if recursive or len(parts) == 1:
            item = {"type": "file", "oid": entry.etag[:40], "size": entry.size, "path": entry.path}
            if entry.large:
                item["lfs"] = {"oid": entry.etag, "size": entry.size, "pointerSize": 135}
            yield item


def _wanted_paths(body: str) -> list[str]:
    return parse_qs(body).get("paths", []) if not body.startswith("{") else json.loads(body)["paths"]


def _is_set(query: str, key: str) -> bool:
    return parse_qs(query).get(key, [""])[-1].lower() in ("true", "1")
