"""The chain as a picture: seven rings, drawn by state, never by colour alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from draftproof.evidence.chain import ChainReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.html.markup import Markup, tag
from draftproof.evidence.verdict import Verdict


class RingState(Enum):
    """How a ring is drawn. The value is its class in the style sheet."""

    HOLDS = "proven"
    BROKEN = "disproved"
    OPEN = "unknown"
    VOID = "void"
    """It was run, and an earlier link is broken."""
    NOT_RUN = "absent"


@dataclass(frozen=True)
class Ring:
    """One link as it is drawn."""

    link: Link
    state: RingState
    word: str


def rings_of(chain: ChainReport) -> tuple[Ring, ...]:
    """All seven links, in order."""
    return tuple(_ring(chain, link) for link in Link)


def chain_picture(chain: ChainReport, anchor: Callable[[Link], str]) -> Markup:
    """Seven rings, each leading to its evidence.

    Args:
        chain: what is drawn.
        anchor: of a link's evidence on the page.
    """
    items = (_item(ring, anchor(ring.link)) for ring in rings_of(chain))
    return tag("ol", *items, class_="chain", aria_label="The chain, link by link")


def state_of(verdict: Verdict) -> RingState:
    """The drawing of a verdict that counts."""
    return _STATES[verdict]


def symbol(state: RingState) -> Markup:
    """A small sign of a state; the word beside it says the same."""
    return tag(
        "svg",
        *_SIGNS[state],
        viewBox="0 0 16 16",
        width="16",
        height="16",
        class_="sign",
        aria_hidden="true",
    )


def badge(state: RingState, word: str) -> Markup:
    """Sign and word of a verdict."""
    return tag("span", symbol(state), word, class_=f"badge {state.value}")


_STATES = {
    Verdict.PROVEN: RingState.HOLDS,
    Verdict.DISPROVED: RingState.BROKEN,
    Verdict.UNKNOWN: RingState.OPEN,
}


def _ring(chain: ChainReport, link: Link) -> Ring:
    report = next((report for report in chain.links if report.link is link), None)
    if report is None:
        return Ring(link, RingState.NOT_RUN, "not run")
    if not chain.counts(report):
        return Ring(link, RingState.VOID, "does not count")
    return Ring(link, state_of(report.verdict), report.verdict.value)


def _item(ring: Ring, anchor: str) -> Markup:
    name = tag("span", tag("b", str(ring.link.number)), f" {ring.link.value}", class_="name")
    content = (_drawing(ring.state), name, tag("span", ring.word, class_="word"))
    if ring.state is RingState.NOT_RUN:
        inside = tag("span", *content, title=ring.link.definition.holds_when)
    else:
        inside = tag("a", *content, href=f"#{anchor}", title=ring.link.definition.holds_when)
    return tag("li", inside, class_=ring.state.value)


def _drawing(state: RingState) -> Markup:
    parts = _HALVES if state is RingState.BROKEN else _WHOLE
    sign = tag("g", *_SIGNS[state], transform="translate(48 20)", class_="inner")
    return tag("svg", *parts, sign, viewBox="0 0 112 56", class_="ring", aria_hidden="true")


def _stroke(path: str) -> Markup:
    return tag("path", d=path)


_WHOLE = (tag("rect", x="6", y="8", width="100", height="40", rx="20", class_="body"),)
_HALVES = (
    tag(
        "g",
        tag("path", d="M43 8H26a20 20 0 0 0 0 40h12l5-7", class_="body"),
        transform="rotate(-7 26 28) translate(-2 0)",
    ),
    tag(
        "g",
        tag("path", d="M69 48h17a20 20 0 0 0 0-40H74l-5 7", class_="body"),
        transform="rotate(-7 86 28) translate(2 0)",
    ),
)
_SIGNS = {
    RingState.HOLDS: (_stroke("M2.5 8.5l3.8 3.8L13.5 4"),),
    RingState.BROKEN: (_stroke("M3.5 3.5l9 9"), _stroke("M12.5 3.5l-9 9")),
    RingState.OPEN: (
        _stroke("M4.7 5.4a3.3 3.3 0 1 1 4.9 2.9C8.500 9 8 9.500 8 10.500"),
        _stroke("M8 13.6v.1"),
    ),
    RingState.VOID: (_stroke("M3 8h10"),),
    RingState.NOT_RUN: (_stroke("M3.5 8h.1"), _stroke("M8 8h.1"), _stroke("M12.5 8h.1")),
}
