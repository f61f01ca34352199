"""Small reports to render."""

from dataclasses import replace

from draftproof.evidence import (
    ChainReport,
    ComparisonReport,
    Deployment,
    EvidenceItem,
    Link,
    LinkReport,
    Location,
    Subject,
    Verdict,
    information,
    warning,
)


def item(verdict=Verdict.PROVEN, check="head-complete", **changes):
    fields = {
        "check": check,
        "claim": "Every tensor of the MTP head is present.",
        "verdict": verdict,
        "expected": "15 tensors",
        "observed": "15 tensors" if verdict is Verdict.PROVEN else "14 tensors; missing mtp.fc.weight",
        "where": (Location("model.safetensors", tensor="mtp.fc.weight"),),
        "command": "python -c 'print(1)'",
        "reason": "nobody looked" if verdict is Verdict.UNKNOWN else "",
    }
    return EvidenceItem(**{**fields, **changes})


def link(which, *verdicts, **changes):
    return LinkReport(link=which, items=tuple(item(verdict) for verdict in verdicts), seconds=0.25, **changes)


def chain(*links):
    return ChainReport(
        subject=Subject("tiny", "/models/tiny", "Qwen3_5MoeForConditionalGeneration", "0123456789abcdef"),
        links=links,
        version="0.0.1",
        started_at="2026-01-02T03:04:05Z",
        arguments=("draftproof", "verify", "tiny"),
    )


def proven():
    return chain(link(Link.CONFIG, Verdict.PROVEN), link(Link.WEIGHTS, Verdict.PROVEN))


def broken_config():
    return chain(link(Link.CONFIG, Verdict.DISPROVED), link(Link.WEIGHTS, Verdict.PROVEN))


def open_weights():
    return chain(link(Link.CONFIG, Verdict.PROVEN), link(Link.WEIGHTS, Verdict.UNKNOWN))


def with_notes():
    noted = item(
        notes=(
            warning(
                "exclude list disagrees with the tensor: mtp.fc", Location("config.json", field="ignore")
            ),
            information("the head is BF16"),
        )
    )
    return chain(
        link(Link.CONFIG, Verdict.PROVEN),
        LinkReport(Link.WEIGHTS, (noted,), 1.0, limits=("values outside the sample",)),
    )


def in_stack(version, *links, shared=None):
    """A chain about one version of SGLang; `shared` are links 1 and 2, the same object in every chain."""
    common = shared or (link(Link.CONFIG, Verdict.PROVEN), link(Link.WEIGHTS, Verdict.PROVEN))
    about = chain(*common, *links)
    deployment = Deployment("SGLang", version, "made for a test", "H200", 4)
    return replace(about, subject=replace(about.subject, deployment=deployment))


def comparison():
    """Broken in 0.5.9, held in 0.5.12; one claim fails in both, one is made by the second alone."""
    shared = (link(Link.CONFIG, Verdict.PROVEN), link(Link.WEIGHTS, Verdict.PROVEN))
    old = (
        item(Verdict.PROVEN, "target-known", claim="The target is known."),
        item(Verdict.DISPROVED, "draft-class", claim="There is a class.", observed="no class"),
        item(Verdict.UNKNOWN, "written", claim="Everything is written.", reason="form not known"),
    )
    new = (
        item(Verdict.PROVEN, "target-known", claim="The target is known."),
        item(Verdict.PROVEN, "draft-class", claim="There is a class."),
        item(Verdict.UNKNOWN, "written", claim="Everything is written.", reason="form not known either"),
        item(Verdict.PROVEN, "only-new", claim="Something new holds."),
    )
    return ComparisonReport(
        (
            in_stack("0.5.9", LinkReport(Link.CODE, old, 0.1), shared=shared),
            in_stack("0.5.12", LinkReport(Link.CODE, new, 0.1), shared=shared),
        )
    )
