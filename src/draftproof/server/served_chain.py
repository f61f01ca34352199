"""The chain of evidence of the served checkpoint as the server shows it: words only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LinkState(Enum):
    """How a link stands."""

    PROVEN = "proven"
    DISPROVED = "disproved"
    UNKNOWN = "unknown"
    VOID = "void"
    """It was run, and an earlier link is broken."""
    NOT_RUN = "not run"
    LIVE = "live"
    """Observed while serving; says what is seen now and proves nothing that was not measured."""


@dataclass(frozen=True)
class ServedClaim:
    """One claim of a link.

    Attributes:
        claim: a sentence that can be false.
        state: what is known about it.
        observed: what was seen, or why it is not known.
    """

    claim: str
    state: LinkState
    observed: str


@dataclass(frozen=True)
class ServedLink:
    """One link.

    Attributes:
        number: position in the chain, from 1.
        name: one word.
        holds_when: the sentence that its evidence decides.
        state: how it stands.
        summary: why, in one sentence.
        claims: the evidence.
    """

    number: int
    name: str
    holds_when: str
    state: LinkState
    summary: str
    claims: tuple[ServedClaim, ...] = ()


@dataclass(frozen=True)
class ServedChain:
    """All links, in order.

    Attributes:
        checkpoint: its name, as the user gave it.
        architecture: of its config; empty when it is not known.
        links: one a link, those that were not run included.
        command: a shell command that shows the whole evidence; empty when there is none.
    """

    checkpoint: str
    architecture: str
    links: tuple[ServedLink, ...]
    command: str = ""
