"""Reading from package indexes over HTTP: proxies, certificates and passwords as pip is configured for.

Only the standard library is used. Credentials are sent to the host that they were given for, never further by
a redirect, and never stand in a message.
"""

from __future__ import annotations

import base64
import http.client
import netrc
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import unquote, urlsplit

from draftproof import __version__
from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find.pip_settings import PipSettings, without_password

ATTEMPTS = 3
PAUSE_SECONDS = 0.5
CHUNK = 1 << 18
_BUSY = (429, 500, 502, 503, 504)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
T = TypeVar("T")


@dataclass(frozen=True)
class Page:
    """A whole answer.

    Attributes:
        address: where it came from in the end, for links that are relative to it.
        kind: content type without parameters, in lower case.
        content: the body.
    """

    address: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Piece:
    """A range of a file.

    Attributes:
        start: offset of the first byte.
        content: the bytes.
        total: size of the whole file.
    """

    start: int
    content: bytes
    total: int


class RangesNotServed(Exception):
    """The server answers a request for a range with something else."""


class WebReader:
    """GET requests. Safe to use from several threads.

    Args:
        settings: proxies, certificates, passwords, timeout.

    Raises:
        EnvironmentProblem: a certificate file cannot be used.
    """

    def __init__(self, settings: PipSettings) -> None:
        self._settings = settings
        self._credentials = _credentials((*settings.index_urls, *settings.find_links))
        proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(proxies),
            urllib.request.HTTPHandler(),
            _SecureHandler(settings, _verified(settings)),
            _CarefulRedirects(),
            _Passwords(self._credentials),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ):
            self._opener.add_handler(handler)

    def page(self, address: str, accept: str, limit: int) -> Page | None:
        """A whole small answer; None when the server says that there is no such address.

        Raises:
            EnvironmentProblem: it cannot be reached or refuses, or answers with more than `limit` bytes.
        """

        def read() -> Page | None:
            with self._open(address, {"Accept": accept}) as answer:
                content = answer.read(limit + 1)
                if len(content) > limit:
                    place = without_password(address)
                    raise EnvironmentProblem(f"{place} answers with more than {limit} bytes")
                _require_length(answer, len(content))
                return Page(answer.geturl(), answer.headers.get_content_type().lower(), content)

        try:
            return self._with_retries(address, read)
        except urllib.error.HTTPError as error:
            if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                return None
            raise _refused(address, error) from error

    def piece(self, address: str, wanted: str, limit: int) -> Piece:
        """A range of a file.

        Args:
            address: the file.
            wanted: the range as HTTP writes it: "0-99", or "-100" for the last bytes.
            limit: most bytes that the range can have.

        Raises:
            RangesNotServed: the answer is not that range.
            EnvironmentProblem: the server cannot be reached or refuses.
        """

        def read() -> Piece:
            headers = {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"}
            with self._open(address, headers) as answer:
                start, end, total = _content_range(answer)
                if not 0 <= start < end <= total or end - start > limit or not _is_asked(wanted, start, end):
                    raise RangesNotServed("the server answers with another range")
                content = answer.read(end - start)
                if len(content) != end - start:
                    raise http.client.IncompleteRead(content)
                return Piece(start, content, total)

        try:
            return self._with_retries(address, read)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise RangesNotServed("the server refuses the range") from error
            raise _refused(address, error) from error

    def download(
        self, address: str, target: IO[bytes], limit: int, progress: Callable[[int, int], None]
    ) -> None:
        """A whole file into `target`, from its start.

        Args:
            address: the file.
            target: open for writing at 0; begun anew when the transfer breaks.
            limit: most bytes that are accepted.
            progress: receives bytes read and bytes expected (0 when not known).

        Raises:
            EnvironmentProblem: the server cannot be reached or refuses, the file is too large or cut short.
        """

        def read() -> None:
            target.seek(0)
            target.truncate()
            with self._open(address, {"Accept-Encoding": "identity"}) as answer:
                expected = int(answer.headers.get("Content-Length") or 0)
                done = 0
                while chunk := answer.read(CHUNK):
                    done += len(chunk)
                    if done > limit:
                        place = without_password(address)
                        raise EnvironmentProblem(f"{place} sends more than {limit} bytes")
                    target.write(chunk)
                    progress(done, expected)
                _require_length(answer, done)

        try:
            self._with_retries(address, read)
        except urllib.error.HTTPError as error:
            raise _refused(address, error) from error

    @contextmanager
    def _open(self, address: str, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https"):
            raise EnvironmentProblem(f"{without_password(address)} is no http or https address")
        trusted = parts.hostname in _LOCAL_HOSTS or _is_trusted(self._settings, address)
        if parts.scheme == "http" and not trusted:
            raise EnvironmentProblem(
                f"{without_password(address)} is not encrypted and not a trusted host",
                "Use https, or name the host in pip's trusted-host setting.",
            )
        plain = without_password(address)
        agent = {"User-Agent": f"draftproof/{__version__}"}
        request = urllib.request.Request(plain, headers={**agent, **headers})
        answer: http.client.HTTPResponse = self._opener.open(request, timeout=self._settings.timeout)
        with answer:
            yield answer

    def _with_retries(self, address: str, read: Callable[[], T]) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return read()
            except urllib.error.HTTPError as error:
                if error.code not in _BUSY or attempt == ATTEMPTS:
                    raise
            except (OSError, http.client.HTTPException) as error:
                if attempt == ATTEMPTS:
                    raise _unreachable(address, error) from error
            time.sleep(PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")


class _SecureHandler(urllib.request.HTTPSHandler):
    """TLS, where the hosts that pip trusts anyway are not verified."""

    def __init__(self, settings: PipSettings, verified: ssl.SSLContext) -> None:
        super().__init__(context=verified)
        self._settings = settings
        self._verified = verified
        self._unverified = ssl._create_unverified_context()

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        trusted = _is_trusted(self._settings, request.full_url)
        context = self._unverified if trusted else self._verified
        answer: http.client.HTTPResponse = self.do_open(http.client.HTTPSConnection, request, context=context)
        return answer


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https only, and never from https to http."""

    def redirect_request(  # type: ignore[no-untyped-def]
        self, request, file, code, message, headers, new_address
    ):
        old, new = urlsplit(request.full_url).scheme, urlsplit(new_address).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            place = without_password(request.full_url)
            raise EnvironmentProblem(f"{place} redirects to an address that is not encrypted")
        return super().redirect_request(request, file, code, message, headers, new_address)


class _Passwords(urllib.request.BaseHandler):
    """Adds a password to requests for the host that it was given for."""

    def __init__(self, credentials: dict[str, str]) -> None:
        self._credentials = credentials

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        header = self._credentials.get(request.host)
        if header is not None:
            # Not among the headers that a redirect takes along.
            request.add_unredirected_header("Authorization", header)
        return request

    https_request = http_request


def _credentials(addresses: tuple[str, ...]) -> dict[str, str]:
    """Authorization headers by "host" or "host:port": from the addresses, else from ~/.netrc as pip does."""
    found: dict[str, str] = {}
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            continue
        host = parts.netloc.rpartition("@")[2]
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        elif (entry := _netrc_entry(parts.hostname)) is not None:
            user, password = entry
        else:
            continue
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        found.setdefault(host, f"Basic {token}")
    return found


def _netrc_entry(host: str) -> tuple[str, str] | None:
    try:
        entry = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return (entry[0], entry[2] or "") if entry is not None else None


def _verified(settings: PipSettings) -> ssl.SSLContext:
    try:
        if settings.certificate and Path(settings.certificate).is_dir():
            context = ssl.create_default_context(capath=settings.certificate)
        else:
            context = ssl.create_default_context(cafile=settings.certificate)
        if settings.client_certificate:
            context.load_cert_chain(settings.client_certificate)
    except (OSError, ssl.SSLError) as error:
        files = " or ".join(filter(None, (settings.certificate, settings.client_certificate)))
        raise EnvironmentProblem(
            f"the certificates in {files} cannot be used: {error}", "Correct pip's cert setting."
        ) from error
    return context


def _is_trusted(settings: PipSettings, address: str) -> bool:
    parts = urlsplit(address)
    return bool({parts.hostname, f"{parts.hostname}:{parts.port}"} & set(settings.trusted_hosts))


def _content_range(answer: http.client.HTTPResponse) -> tuple[int, int, int]:
    """Start, end (exclusive) and size of the whole file, as the answer says."""
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        raise RangesNotServed("the server sends the whole file for a range")
    unit, _, rest = (answer.headers.get("Content-Range") or "").partition(" ")
    span, _, total = rest.partition("/")
    first, _, last = span.partition("-")
    if unit != "bytes" or not (first.isdecimal() and last.isdecimal() and total.isdecimal()):
        raise RangesNotServed("the server does not say which range it sends")
    return int(first), int(last) + 1, int(total)


def _is_asked(wanted: str, start: int, end: int) -> bool:
    first, _, last = wanted.partition("-")
    return not first or (start == int(first) and end == int(last) + 1)


def _require_length(answer: http.client.HTTPResponse, done: int) -> None:
    expected = answer.headers.get("Content-Length")
    if expected is not None and expected.isdecimal() and int(expected) != done:
        raise http.client.IncompleteRead(b"", int(expected) - done)


def _refused(address: str, error: urllib.error.HTTPError) -> EnvironmentProblem:
    remedy = "Check the user and password of pip's index-url." if error.code in (401, 403, 407) else ""
    return EnvironmentProblem(f"{without_password(address)} answers {error.code} {error.reason}", remedy)


def _unreachable(address: str, error: Exception) -> EnvironmentProblem:
    reason = getattr(error, "reason", None) or error
    return EnvironmentProblem(
        f"{without_password(address)} cannot be read: {reason or type(error).__name__}",
        "Check the network and pip's settings (index-url, proxy, cert).",
    )
