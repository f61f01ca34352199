"""What every page has: the head with its security policy, the choice of light and dark, the foot."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from draftproof.evidence.chain import ChainReport, Subject
from draftproof.evidence.html.markup import Markup, joined, raw, tag

_THEMES = (("auto", "Auto"), ("light", "Light"), ("dark", "Dark"))


def page(title: str, *content: str) -> str:
    """A whole document, ending with a newline.

    Its policy allows one style sheet, named by its hash, and nothing else: no script, no picture, no
    connection, whatever a checkpoint's names hold.
    """
    style = files("draftproof.evidence.html").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", raw(style)),
    )
    body = tag("body", _header(), tag("main", *content))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def subject_heading(subject: Subject) -> Markup:
    """The checkpoint's name."""
    question = tag("p", "Can this checkpoint draft for itself?", class_="kicker")
    return tag("div", question, tag("h1", subject.name), class_="subject")


def subject_facts(subject: Subject, stacks: str = "") -> Markup:
    """What the report is about, in full.

    Args:
        subject: the checkpoint.
        stacks: their names when there are several.
    """
    deployment = subject.deployment
    rows = [
        ("Architecture", subject.architecture),
        ("Read from", subject.location if subject.location != subject.name else ""),
        ("Revision", subject.revision),
        ("Stacks" if stacks else "Stack", stacks or (deployment.stack_label if deployment else "")),
        ("Source", deployment.origin if deployment and not stacks else ""),
        ("GPUs", deployment.gpu_label if deployment else ""),
    ]
    listed = (tag("div", tag("dt", name), tag("dd", value)) for name, value in rows if value)
    return tag("div", tag("dl", *listed, class_="facts"), class_="about")


def unproven(clauses: tuple[str, ...]) -> Markup:
    """What the report leaves open."""
    if not clauses:
        return joined(())
    return tag(
        "section",
        tag("h2", "What this report does not prove", id="unproven-title"),
        tag("ul", *(tag("li", clause) for clause in clauses), class_="unproven"),
        aria_labelledby="unproven-title",
        class_="card",
    )


def footer(chain: ChainReport) -> Markup:
    """Who made the report, when, and with which command."""
    command = " ".join(chain.arguments)
    return tag(
        "footer",
        tag("p", f"draftproof {chain.version} · ", tag("time", chain.started_at)),
        *((tag("pre", command, class_="command", tabindex="0"),) if command else ()),
    )


def _header() -> Markup:
    choices = []
    for value, label in _THEMES:
        checked = "" if value == "auto" else None
        name = f"theme-{value}"
        choices.append(tag("input", type="radio", name="theme", id=name, checked=checked))
        choices.append(tag("label", label, for_=name))
    switch = tag("fieldset", tag("legend", "Colours", class_="unseen"), *choices, class_="themes")
    brand = tag("span", "draftproof", tag("span", " verify"), class_="brand")
    return tag("header", brand, switch, class_="bar")
