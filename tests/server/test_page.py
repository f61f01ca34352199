"""The page's files: nothing from elsewhere, and nothing that its policy would stop."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from draftproof.server.app import create_app
from draftproof.server.observability import observe
from draftproof.server.settings import ServerSettings
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngineClient

NAMES = sorted(entry.name for entry in files("draftproof.server").joinpath("page").iterdir())


@pytest.fixture
def page(engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings) -> TestClient:
    """A client of an application with the page."""
    seen = observe(engine, settings)
    return TestClient(create_app(seen.client, tokenizer, None, settings, routers=seen.routers))


def test_the_page_is_at_the_root_under_a_policy_without_exceptions(page: TestClient) -> None:
    answer = page.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_with_its_type_and_is_not_guessed_at(page: TestClient, name: str) -> None:
    answer = page.get(f"/page/{name}")
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "octet-stream" not in answer.headers["content-type"]


@pytest.mark.parametrize("name", NAMES)
def test_no_file_names_another_host_or_writes_markup(page: TestClient, name: str) -> None:
    text = page.get(f"/page/{name}").text.replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|\sstyle=|\son\w+=", text)


def test_whatever_the_files_load_is_there(page: TestClient) -> None:
    texts = {name: page.get(f"/page/{name}").text for name in NAMES}
    wanted = set(re.findall(r'(?:src|href)="/page/([^"]+)"', texts["index.html"]))
    for text in texts.values():
        wanted |= set(re.findall(r'from "\./([^"]+)"', text))
    assert wanted
    assert wanted <= set(NAMES)


def test_other_names_are_not_files_of_the_page(page: TestClient) -> None:
    assert page.get("/page/..%2fsettings.py").status_code == 404
    assert page.get("/page/__init__.py").status_code == 404
