"""One chain as a page: verdict, picture, evidence, what is not proven."""

from __future__ import annotations

from draftproof.evidence.chain import ChainReport
from draftproof.evidence.html.link_sections import link_sections
from draftproof.evidence.html.markup import Markup, joined, tag
from draftproof.evidence.html.page import footer, page, subject_facts, subject_heading, unproven
from draftproof.evidence.html.picture import badge, chain_picture, state_of


def to_html(chain: ChainReport) -> str:
    """The whole report, ending with a newline."""
    return page(
        f"{chain.verdict.word}: {chain.subject.name}",
        subject_heading(chain.subject),
        verdict_line(chain),
        chain_picture(chain, lambda link: link.value),
        subject_facts(chain.subject),
        link_sections(chain, chain.links, lambda link: link.value),
        unproven(chain.does_not_prove),
        not_run(chain),
        footer(chain),
    )


def verdict_line(chain: ChainReport) -> Markup:
    """The verdict and the sentence that says why."""
    state = state_of(chain.verdict)
    sentence = chain.summary[:1].upper() + chain.summary[1:]
    return tag(
        "div",
        badge(state, chain.verdict.word),
        tag("p", sentence),
        class_=f"verdictline {state.value}",
        role="status",
    )


def not_run(chain: ChainReport) -> Markup:
    """Links that nobody asked for, and what they need."""
    if not chain.not_run:
        return joined(())
    rows = (
        tag(
            "li",
            tag("b", f"{link.number} {link.value}"),
            f" {link.definition.holds_when} ",
            tag("span", f"Needs {link.definition.needs}.", class_="needs"),
        )
        for link in chain.not_run
    )
    return tag(
        "section",
        tag("h2", "Links that were not run", id="not-run-title"),
        tag("ul", *rows, class_="unproven"),
        aria_labelledby="not-run-title",
        class_="card",
    )
