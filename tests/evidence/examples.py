"""Small reports to render."""

from draftproof.evidence import (
    ChainReport,
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
