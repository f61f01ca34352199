"""The files of a project on package indexes: simple API in JSON (PEP 691) or HTML (PEP 503), and find-links.

As pip does, every configured place is asked and what they list is put together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find.pip_settings import PipSettings, without_password
from draftproof.stacks.find.web import Page, WebReader

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
MAX_PAGE_BYTES = 64 << 20
_JSON = "application/vnd.pypi.simple.v1+json"
_SUFFIXES = (".whl", ".tar.gz")


@dataclass(frozen=True)
class IndexFile:
    """One file that an index lists.

    Attributes:
        name: "sglang-0.5.12-py3-none-any.whl".
        address: where it is; a file:// address or an http(s) one. May hold a password.
        listed_at: the index or page that lists it, without a password.
        sha256: of the whole file, in hex; empty when not said.
        size: in bytes; None when not said.
        yanked: why it was withdrawn; "" when without a reason; None when it was not.
    """

    name: str
    address: str
    listed_at: str
    sha256: str = ""
    size: int | None = None
    yanked: str | None = None


@dataclass(frozen=True)
class Listing:
    """What all places together list.

    Attributes:
        files: in the order of the places.
        unreachable: one sentence for each place that could not be asked.
    """

    files: tuple[IndexFile, ...]
    unreachable: tuple[str, ...]


def list_files(project: str, settings: PipSettings, reader: WebReader) -> Listing:
    """Every file of a project in every configured place.

    Args:
        project: normalised name.
        settings: the places.
        reader: for those that are on the network.
    """
    files: list[IndexFile] = []
    problems: list[str] = []
    pages = [(f"{index}/{project}/", index) for index in settings.index_urls]
    for address, place in (*pages, *((link, link) for link in settings.find_links)):
        try:
            files += _files_at(address, without_password(place), reader)
        except EnvironmentProblem as problem:
            problems.append(problem.message)
    return Listing(tuple(file for file in files if _project(file.name) == project), tuple(problems))


def local_path(address: str) -> Path | None:
    """The path on this machine that a file:// address or a plain path names; None for anything else."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(address).expanduser() if parts.scheme not in ("http", "https") else None


def _project(name: str) -> str | None:
    """The project that a file belongs to by its name: folders of files hold those of many."""
    try:
        return (parse_wheel_filename(name) if name.endswith(".whl") else parse_sdist_filename(name))[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def _files_at(address: str, place: str, reader: WebReader) -> Iterable[IndexFile]:
    folder = local_path(address)
    if folder is not None:
        return _local_files(folder, place)
    page = reader.page(address, ACCEPT, MAX_PAGE_BYTES)
    if page is None:
        return ()
    return _from_json(page, place) if page.kind == _JSON else _from_html(page, place)


def _local_files(path: Path, place: str) -> Iterator[IndexFile]:
    """A folder of an index on disk with its index.html, a page, or a folder of files."""
    page = path / "index.html" if path.is_dir() else path
    try:
        if page.is_file() and page.suffix == ".html":
            content = page.read_bytes()[:MAX_PAGE_BYTES]
            yield from _from_html(Page(page.resolve().as_uri(), "text/html", content), place)
        elif path.is_dir():
            for file in sorted(path.iterdir()):
                if file.name.endswith(_SUFFIXES) and file.is_file():
                    yield IndexFile(file.name, file.resolve().as_uri(), place, size=file.stat().st_size)
    except OSError as error:
        raise EnvironmentProblem(f"{place} cannot be read: {error.strerror or error}") from error


def _from_json(page: Page, place: str) -> Iterator[IndexFile]:
    try:
        listed = json.loads(page.content)["files"]
        for entry in listed:
            file = _json_file(entry, page, place)
            if file is not None:
                yield file
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EnvironmentProblem(f"{place} answers with a listing that makes no sense") from error


def _json_file(entry: dict[str, Any], page: Page, place: str) -> IndexFile | None:
    name, address = entry["filename"], entry["url"]
    size, yanked = entry.get("size"), entry.get("yanked", False)
    sha256 = entry.get("hashes", {}).get("sha256", "")
    if not (isinstance(name, str) and isinstance(address, str) and isinstance(sha256, str)):
        raise TypeError("a file's name, address and digest are text")
    if not name.endswith(_SUFFIXES) or "/" in name:
        return None
    return IndexFile(
        name=name,
        address=urljoin(page.address, address),
        listed_at=place,
        sha256=sha256.lower(),
        size=size if isinstance(size, int) and size >= 0 else None,
        yanked=yanked if isinstance(yanked, str) else ("" if yanked is True else None),
    )


def _from_html(page: Page, place: str) -> Iterator[IndexFile]:
    parser = _Links()
    try:
        parser.feed(page.content.decode("utf-8", errors="replace"))
        parser.close()
        base = urljoin(page.address, parser.base)
        for address, yanked in parser.links:
            plain, fragment = urldefrag(urljoin(base, address))
            name = unquote(urlsplit(plain).path).rpartition("/")[2]
            if name.endswith(_SUFFIXES):
                kind, _, digest = fragment.partition("=")
                sha256 = digest.lower() if kind == "sha256" else ""
                yield IndexFile(name, plain, place, sha256, yanked=yanked)
    except (ValueError, AssertionError) as error:
        raise EnvironmentProblem(f"{place} answers with a page that makes no sense") from error


class _Links(HTMLParser):
    """Collects (address, yanked) of every link, and the base address of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.links: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base" and not self.base:
            self.base = attributes.get("href") or ""
        elif tag == "a" and attributes.get("href"):
            yanked = (attributes["data-yanked"] or "") if "data-yanked" in attributes else None
            self.links.append((attributes["href"] or "", yanked))
