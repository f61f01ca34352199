"""The HTML report: one file, no script, hostile text stays text, every state of a link with its own sign."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from draftproof.evidence import ComparisonReport, Link, LinkReport, Location, Subject, Verdict, warning
from draftproof.evidence.html import comparison_to_html, to_html
from draftproof.evidence.html.markup import tag
from draftproof.evidence.html.picture import RingState, rings_of
from tests.evidence import examples

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\'"&amp;</style></details>'
VOID = {"meta", "input"}
REPORTS = [examples.proven, examples.broken_config, examples.open_weights, examples.with_notes]


class Page(HTMLParser):
    """The elements of a page, and whether they are nested as they should be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.data = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.data.append(data)

    def named(self, name):
        return [attributes for element, attributes in self.elements if element == name]

    @property
    def text(self):
        return "".join(self.data)


def parsed(chain):
    page = Page(to_html(chain))
    assert page.open == []
    return page


def hostile_chain():
    item = examples.item(
        Verdict.DISPROVED,
        check=HOSTILE,
        claim=HOSTILE,
        expected=HOSTILE,
        observed=HOSTILE,
        command=HOSTILE,
        where=(Location(HOSTILE, tensor=HOSTILE),),
        notes=(warning(HOSTILE, Location(HOSTILE), command=HOSTILE),),
    )
    chain = examples.chain(LinkReport(Link.CONFIG, (item,), 0.0, limits=(HOSTILE,)))
    subject = Subject(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    return examples.replace(chain, subject=subject, arguments=(HOSTILE,))


@pytest.mark.parametrize("make", REPORTS)
def test_the_verdict_comes_first_then_the_picture_then_the_evidence(make):
    chain = make()
    text = to_html(chain)
    positions = [
        text.index(f">{chain.subject.name}</h1>"),
        text.index('class="verdictline'),
        text.index('class="chain"'),
        text.index('id="config"'),
        text.index("What this report does not prove"),
    ]
    assert positions == sorted(positions)
    assert chain.summary[1:20] in parsed(chain).text


def test_nothing_is_loaded_and_nothing_runs():
    page = parsed(examples.with_notes())
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "form"}
    for name, attributes in page.elements:
        assert not any(key.startswith("on") or key in ("src", "style") for key in attributes), name
        assert attributes.get("href", "#").startswith("#")


def test_the_policy_admits_the_style_sheet_and_nothing_else():
    text = to_html(examples.proven())
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(meta["content"] for meta in parsed(examples.proven()).named("meta") if "http-equiv" in meta)
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_text_stays_text_everywhere():
    chain = hostile_chain()
    page = parsed(chain)
    assert not page.named("script")
    assert not page.named("img")
    assert len(page.named("style")) == 1
    # Claim, expected, observed, command, place (file and tensor), note, its place and command, check,
    # limit, subject, arguments: each is on the page as it was.
    assert page.text.count(HOSTILE) >= 12


def test_text_becomes_markup_only_by_name():
    assert tag("p", "<b>", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;">&lt;b&gt;</p>'
    assert tag("p", tag("b", "&")) == "<p><b>&amp;</b></p>"


def test_every_state_of_a_link_is_a_word_and_a_drawing_of_its_own():
    chain = examples.chain(
        examples.link(Link.CONFIG, Verdict.PROVEN),
        examples.link(Link.WEIGHTS, Verdict.UNKNOWN),
        examples.link(Link.CODE, Verdict.DISPROVED),
        examples.link(Link.LAUNCH, Verdict.PROVEN),
    )
    states = [ring.state for ring in rings_of(chain)]
    assert states[:4] == [RingState.HOLDS, RingState.OPEN, RingState.BROKEN, RingState.VOID]
    assert set(states[4:]) == {RingState.NOT_RUN}
    text = to_html(chain)
    picture = text[text.index('<ol class="chain"') : text.index("</ol>")]
    for ring in rings_of(chain):
        assert ring.word in picture
    drawings = re.findall(r"<svg.*?</svg>", picture)
    assert len(drawings) == 7
    assert len(set(drawings[:5])) == 5


def test_every_ring_that_was_run_leads_to_its_evidence():
    page = parsed(examples.broken_config())
    targets = {attributes["href"][1:] for attributes in page.named("a")}
    anchors = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert targets == {"config", "weights"}
    assert targets <= anchors


def test_what_decides_is_unfolded_and_what_is_proven_is_folded():
    folded = parsed(examples.open_weights()).named("details")
    assert [("open" in attributes, attributes["class"]) for attributes in folded] == [
        (False, "claim proven"),
        (True, "claim unknown"),
    ]


def test_a_link_after_a_broken_one_says_that_it_does_not_count():
    text = parsed(examples.broken_config()).text
    assert "Does not count: an earlier link is broken." in text


def test_it_can_be_read_without_eyes_or_a_mouse():
    page = parsed(examples.with_notes())
    assert page.named("html")[0]["lang"] == "en"
    labels = {attributes["for"] for attributes in page.named("label")}
    assert labels == {attributes["id"] for attributes in page.named("input")}
    assert len(page.named("h1")) == 1
    anchors = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for section in page.named("section"):
        assert section["aria-labelledby"] in anchors
    assert all(drawing["aria-hidden"] == "true" for drawing in page.named("svg"))
    assert all(command["tabindex"] == "0" for command in page.named("pre"))


def luminance(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def schemes():
    style = re.search(r"<style>(.*?)</style>", to_html(examples.proven()), re.DOTALL)[1]
    blocks = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in style.split(":root")]
    return [block for block in blocks if "ink" in block]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_text_colour_can_be_read_on_every_ground_it_stands_on(number):
    scheme = schemes()[number]
    pairs = [(text, ground) for text in ("ink", "quiet", "mute") for ground in ("ground", "paper", "sunken")]
    pairs += [
        (state, ground) for state in ("good", "bad", "open") for ground in ("ground", "paper", "sunken")
    ]
    pairs += [(state, f"{state}-tint") for state in ("good", "bad", "open", "mute")]
    pairs += [("ink", f"{state}-tint") for state in ("good", "bad", "open", "mute")]
    pairs += [("accent", "ground"), ("accent", "paper"), ("accent", "sunken")]
    for text, ground in pairs:
        assert contrast(scheme[text], scheme[ground]) >= 4.5, (text, ground)


def test_both_dark_schemes_are_one():
    assert len(schemes()) == 3
    assert schemes()[1] == schemes()[2]


def test_several_stacks_share_one_page_and_links_1_and_2():
    report = examples.comparison()
    text = comparison_to_html(report)
    page = Page(text)
    assert page.open == []
    anchors = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    assert {"config", "weights", "stack-1-code", "stack-2-code"} <= set(anchors)
    assert {attributes["href"][1:] for attributes in page.named("a")} <= set(anchors)
    assert isinstance(report, ComparisonReport)
    heads = [label for label in report.labels if f'<th scope="col">{label}</th>' in text]
    assert heads == list(report.labels)
