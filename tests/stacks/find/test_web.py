"""What is never done on the way to an index: passwords to strangers, unencrypted detours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request

import pytest

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find import web
from draftproof.stacks.find.pip_settings import PipSettings
from draftproof.stacks.find.web import WebReader


class Server(ThreadingHTTPServer):
    """Answers with a redirect when it has one; remembers what it was told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.redirect = ""
        self.passwords: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it)
        """Says nothing."""

    def do_GET(self) -> None:
        self.server.passwords.append(self.headers.get("Authorization"))
        self.send_response(302 if self.server.redirect else 200)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Server]]:
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.01)
    pair = Server(), Server()
    for server in pair:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield pair
    for server in pair:
        server.shutdown()
        server.server_close()


def with_password(server: Server) -> PipSettings:
    return PipSettings(index_urls=(server.url.replace("//", "//user:secret@"),), timeout=2)


def test_a_password_does_not_follow_a_redirect(servers: tuple[Server, Server]) -> None:
    index, stranger = servers
    index.redirect = f"{stranger.url}/somewhere"
    page = WebReader(with_password(index)).page(f"{index.url}/simple/", "text/html", 100)
    assert page is not None
    assert page.address == index.redirect
    assert index.passwords == ["Basic dXNlcjpzZWNyZXQ="]
    assert stranger.passwords == [None]


def test_a_password_is_sent_again_within_its_host(servers: tuple[Server, Server]) -> None:
    index, _ = servers
    reader = WebReader(with_password(index))
    reader.page(f"{index.url}/one", "text/html", 100)
    reader.page(f"{index.url}/two", "text/html", 100)
    assert len(set(index.passwords)) == 1


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/file"])
def test_redirects_to_anything_but_the_web_are_refused(servers: tuple[Server, Server], target: str) -> None:
    index, _ = servers
    index.redirect = target
    with pytest.raises(EnvironmentProblem, match=r"(?i)redirect"):
        WebReader(PipSettings()).page(index.url, "text/html", 100)


def test_a_redirect_never_gives_up_encryption() -> None:
    request = Request("https://packages.example/simple/")
    with pytest.raises(EnvironmentProblem, match="not encrypted"):
        web._CarefulRedirects().redirect_request(request, None, 302, "", {}, "http://packages.example/")


@pytest.mark.parametrize("address", ["http://packages.example/simple/", "ftp://packages.example/simple/"])
def test_unencrypted_hosts_are_not_asked(address: str) -> None:
    with pytest.raises(EnvironmentProblem, match=r"packages\.example/simple/ is n"):
        WebReader(PipSettings()).page(address, "text/html", 100)


def test_an_unencrypted_host_may_be_trusted_by_the_user(servers: tuple[Server, Server]) -> None:
    """A proxy that refuses stands for the network that a test does not have."""
    index, _ = servers
    settings = PipSettings(trusted_hosts=("packages.example",), proxy=index.url, timeout=2)
    assert WebReader(settings).page("http://packages.example/simple/", "text/html", 100) is not None
    assert len(index.passwords) == 1


def test_an_answer_beyond_its_limit_is_not_read(servers: tuple[Server, Server]) -> None:
    index, _ = servers
    with pytest.raises(EnvironmentProblem, match="more than -1 bytes"):
        WebReader(PipSettings()).page(index.url, "text/html", -1)


def test_a_certificate_file_that_is_none() -> None:
    with pytest.raises(EnvironmentProblem, match="cert setting"):
        WebReader(PipSettings(certificate="/no/such.pem"))
