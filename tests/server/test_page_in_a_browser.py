"""The page in headless Chromium: what people see, and that its own policy stops nothing of it.

Needs the extra `browser` and a Chromium on the path; CHROMIUM names another one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.engine.status import Alarm, AlarmKind, DraftArm, EngineStatus
from draftproof.server.app import create_app
from draftproof.server.observability import observe
from draftproof.server.served_chain import LinkState, ServedChain, ServedClaim, ServedLink
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import Health, HealthState
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import READY, Answer, FakeEngineClient, Piece
from tests.support.http_server import serving

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path"),
]

CHAIN = ServedChain(
    "tiny",
    "Qwen3_5ForCausalLM",
    (
        ServedLink(
            1,
            "config",
            "The config declares a head.",
            LinkState.PROVEN,
            "It declares one.",
            (ServedClaim("The config declares an MTP head.", LinkState.PROVEN, "mtp_num_hidden_layers = 1"),),
        ),
        ServedLink(4, "launch", "The arguments switch it on.", LinkState.NOT_RUN, "Not run."),
        ServedLink(6, "function", "It runs.", LinkState.NOT_RUN, "Not run."),
        ServedLink(7, "speed", "It is faster.", LinkState.NOT_RUN, "Not run."),
    ),
    "draftproof verify tiny",
)
COUNTS = AcceptanceCounts(200, 500, (200, 200, 100), (200, 160, 70), (160, 100, 40))
STATUS = EngineStatus(
    running=2,
    waiting=1,
    pages_used=30,
    pages_cached=10,
    pages_total=100,
    slots_total=4,
    acceptance=COUNTS,
    recent_acceptance=COUNTS,
    arms=(
        DraftArm(1, 0, 0.01, 100.0, False),
        DraftArm(1, 2, 0.013, 190.0, True),
        DraftArm(4, 0, 0.02, 60.0, True),
    ),
)
MARKUP = "<img src=x onerror=alert(1)>"
Look = Callable[..., "playwright.Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    """One for all tests."""
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def look(
    browser: playwright.Browser,
    engine: FakeEngineClient,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    settings: ServerSettings,
) -> Iterator[Look]:
    """Opens the page over the engine; in the end nothing may have gone wrong in the browser."""
    complaints: list[str] = []
    with serving(_app(engine, tokenizer, template, settings)) as url:

        def open_page(**context: object) -> playwright.Page:
            page = browser.new_context(**context).new_page()
            page.set_default_timeout(10_000)
            page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(url)
            return page

        yield open_page
        for context in browser.contexts:
            context.close()
    assert [told for told in complaints if "401" not in told] == []


def _app(
    engine: FakeEngineClient, tokenizer: Tokenizer, template: ChatTemplate, settings: ServerSettings
) -> object:
    seen = observe(engine, settings, CHAIN)
    return create_app(seen.client, tokenizer, template, settings, routers=seen.routers)


def _text(page: playwright.Page, selector: str, part: str) -> None:
    """Wait until an element shows a text."""
    playwright.expect(page.locator(selector)).to_contain_text(part)


def test_health_evidence_acceptance_and_speed_are_there(engine: FakeEngineClient, look: Look) -> None:
    engine.status = STATUS
    page = look()
    _text(page, "#state", "ready")
    _text(page, "#model", "tiny")
    playwright.expect(page.locator("#chain li")).to_have_count(4)
    _text(page, "#chain li:nth-child(1)", "proven")
    _text(page, "#chain li:nth-child(3)", "live")
    _text(page, "#tile-length", "2.50 of 4")
    _text(page, "#tile-requests-note", "1 waiting")
    _text(page, "#tile-gain", "1.00")
    _text(page, "#positions li:nth-child(2)", "80 %")
    _text(page, "#arms td.chosen >> nth=0", "190")
    _text(page, "#memory", "30 + 10 kept of 100")


def test_a_link_shows_its_evidence_when_it_is_chosen_and_keeps_it_open(
    engine: FakeEngineClient, look: Look
) -> None:
    engine.status = STATUS
    page = look()
    page.click("#link summary")
    _text(page, "#link .claims", "mtp_num_hidden_layers = 1")
    engine.status = replace(STATUS, running=3)
    _text(page, "#tile-requests", "3")
    assert page.locator("#link details").get_attribute("open") is not None
    page.click("#chain li:nth-child(2) button")
    _text(page, "#link", "3 of 3 claims hold")
    page.click("#chain li:nth-child(4) button")
    _text(page, "#link", "K = 2 is expected to give 1.90 times")


def test_an_answer_is_streamed_and_says_what_drafting_did(engine: FakeEngineClient, look: Look) -> None:
    engine.answer = lambda request: Answer((Piece("One", (1,)), Piece(" two three", (2, 3), accepted=1)))
    page = look()
    _text(page, "#state", "ready")
    page.fill("#prompt", "Count.")
    page.press("#prompt", "Enter")
    _text(page, ".message.user", "Count.")
    _text(page, ".message.assistant .text", "One two three")
    _text(page, ".message.assistant .note", "3 tokens")
    _text(page, ".message.assistant .note", "accept length 1.50")
    assert page.locator(".step").all_inner_texts() == [" two three"]
    page.select_option("#drafts", "off")
    page.fill("#prompt", "Again.")
    page.click("#send")
    playwright.expect(page.locator(".message.assistant")).to_have_count(2)
    playwright.expect(page.locator("#send")).to_be_visible()
    assert [request.draft_tokens for request in engine.requests] == [None, 0]
    assert len(engine.requests[1].prompt_ids) > len(engine.requests[0].prompt_ids)


def test_an_answer_can_be_stopped_and_its_request_is_aborted(engine: FakeEngineClient, look: Look) -> None:
    engine.answer = lambda request: Answer((Piece("Endless"),), never_ends=True)
    page = look()
    _text(page, "#state", "ready")
    page.fill("#prompt", "Go on.")
    page.press("#prompt", "Enter")
    _text(page, ".message.assistant .text", "Endless")
    playwright.expect(page.locator("#requests tbody tr")).to_have_count(1)
    page.click("#stop")
    _text(page, ".message.assistant .note", "stopped")
    _text(page, "#requests", "None.")
    assert engine.aborted == [engine.requests[0].request_id]


def test_what_the_model_says_is_text_and_never_markup(engine: FakeEngineClient, look: Look) -> None:
    engine.answer = lambda request: Answer((Piece(MARKUP),))
    page = look()
    _text(page, "#state", "ready")
    page.fill("#prompt", MARKUP)
    page.press("#prompt", "Enter")
    _text(page, ".message.assistant .text", MARKUP)
    assert page.locator("img").count() == 0


def test_alarms_are_said_once_and_break_link_6(engine: FakeEngineClient, look: Look) -> None:
    alarm = Alarm(AlarmKind.COLLAPSED_ACCEPTANCE, "accept length 1.00 over 200 passes", ("r1",))
    engine.status = replace(STATUS, alarms=(alarm,))
    engine.health = Health(HealthState.DEGRADED, (alarm.message,))
    page = look()
    _text(page, "#state", "degraded")
    assert page.locator("#notices li").all_inner_texts() == ["accept length 1.00 over 200 passes (r1)"]
    _text(page, "#chain li:nth-child(3)", "disproved")


def test_simulated_acceptance_is_said_above_everything(engine: FakeEngineClient, look: Look) -> None:
    engine.ready = replace(READY, simulated_accept_length=2.5)
    _text(look(), "#notices", "the text of every answer means nothing")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000, 1440])
def test_the_page_fits_its_window_in_both_schemes(
    engine: FakeEngineClient, look: Look, tmp_path: Path, scheme: str, width: int
) -> None:
    engine.status = STATUS
    page = look(color_scheme=scheme, viewport={"width": width, "height": 900})
    _text(page, "#tile-length", "2.50")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(246, 247, 249)" if scheme == "light" else "rgb(16, 19, 24)")
    page.click("label[for=theme-dark]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 24)"


class TestWithAKey:
    """A server that asks for a key."""

    @pytest.fixture
    def settings(self, settings: ServerSettings) -> ServerSettings:
        """With a key."""
        return replace(settings, api_keys=("secret",))

    def test_the_page_asks_for_the_key_and_works_with_it(self, engine: FakeEngineClient, look: Look) -> None:
        engine.status = STATUS
        page = look()
        _text(page, "#state", "locked")
        page.fill("#key", "secret")
        page.press("#key", "Enter")
        _text(page, "#state", "ready")
        page.fill("#prompt", "Hello")
        page.press("#prompt", "Enter")
        _text(page, ".message.assistant .text", "Hello world")
