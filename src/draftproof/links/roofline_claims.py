"""Claims about speed without running anything: what bytes and bandwidth allow, and a measured share."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.evidence import EvidenceItem, EvidenceTable, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, size_text
from draftproof.hardware.gpu import Gpu
from draftproof.hardware.roofline import (
    Deployment,
    Model,
    NextnPrediction,
    Roofline,
    expected_accept_length,
    roofline,
    step_time,
)
from draftproof.hardware.suspects import FourBitUnits, MeasuredShare, Suspect, compare_measured
from draftproof.hardware.traffic import Workload
from draftproof.links.backend_subject import BackendSubject

BOUND_CONTEXT = 1024
"""Tokens of context that the roofline is drawn at: weights count, keys and values hardly."""
_SUSPECTS_SHOWN = 5
_COUNTS = (1, 2, 3, 4, 5)


def roofline_items(subject: BackendSubject) -> Iterator[EvidenceItem]:
    """The roofline, and the measured speed when there is one; nothing without a GPU."""
    gpu = subject.situation.gpu
    if gpu is None:
        return
    model = subject.model
    if model is None:
        yield _open("roofline", subject)
        if subject.situation.measured is not None:
            yield _open("measured-speed", subject)
        return
    line = roofline_for(subject, model, gpu)
    yield _roofline(subject, model, line)
    if subject.situation.measured is not None:
        share = compare_measured(
            model,
            line,
            subject.situation.measured,
            subject.draft_tokens,
            subject.situation.accept_length,
            _four_bits(subject),
        )
        yield _measured(subject, share)


def roofline_for(subject: BackendSubject, model: Model, gpu: Gpu) -> Roofline:
    """The prediction for the situation: its K beside the usual ones, one sequence or as many as it says."""
    situation = subject.situation
    workload = Workload(
        sequences=max(situation.concurrency, 1), context=BOUND_CONTEXT, cache_bytes=subject.cache_bytes
    )
    counts = tuple(sorted({*_COUNTS, subject.draft_tokens} - {0}))
    return roofline(model, Deployment(gpu, situation.tensor_parallel), workload, counts)


def _four_bits(subject: BackendSubject) -> FourBitUnits:
    """What the stack's kernels do with 4-bit weights, as far as its source said."""
    choices = subject.kernels.facts.choices if subject.kernels else ()
    native = {choice.native for choice in choices if "FP4" in choice.precision}
    if False in native:
        return FourBitUnits.CONVERTED
    return FourBitUnits.USED if native == {True} else FourBitUnits.UNKNOWN


def _accept_length(subject: BackendSubject) -> float:
    """The given accept length, or one to plan with; within what the window allows."""
    given = subject.situation.accept_length
    length = expected_accept_length(subject.draft_tokens) if given is None else given
    return min(max(length, 1.0), subject.draft_tokens + 1.0)


def _roofline(subject: BackendSubject, model: Model, line: Roofline) -> EvidenceItem:
    prediction = line.with_drafts(subject.draft_tokens)
    plain = line.plain_speed
    observed = (
        f"plain decoding: at most {_rate(plain.ideal)} by bytes alone"
        f"{_waiting(line, plain.with_all_reduces)}, about {_rate(plain.ordinary)} on an ordinary stack"
    )
    if prediction is not None:
        length = _accept_length(subject)
        fast = prediction.at(length)
        observed += (
            f"; NEXTN with K={prediction.draft_tokens} at accept length {length:.2f}: at most "
            f"{_rate(fast.ideal)}{_waiting(line, fast.with_all_reduces)}, about {_rate(fast.ordinary)}"
        )
    return EvidenceItem(
        check="roofline",
        claim="Bytes and bandwidth bound the speed of decoding here.",
        verdict=Verdict.PROVEN,
        expected="a size of every weight, and the bandwidth of the GPU",
        observed=observed,
        where=(subject.field("hidden_size"),),
        command=f"draftproof inspect {subject.commands.name}",
        notes=tuple(_roofline_notes(subject, model, line, prediction)),
        tables=(_speed_table(line), _byte_table(line)),
    )


def _waiting(line: Roofline, speed: float) -> str:
    count = line.plain.all_reduces
    return f", {_rate(speed)} with {count} all-reduces a pass" if count else ""


def _roofline_notes(
    subject: BackendSubject, model: Model, line: Roofline, prediction: NextnPrediction | None
) -> Iterator[Note]:
    gpu = line.place.gpu
    bandwidth = gpu.reachable_bandwidth
    yield information(f"bandwidth: {bandwidth.value / 1e12:.2f} TB/s a GPU ({bandwidth.source})")
    if line.plain.all_reduces:
        wait = gpu.link.all_reduce
        yield information(
            f"an all-reduce over {gpu.link.words}: {wait.value * 1e6:g} microseconds ({wait.source})"
        )
    if prediction is None:
        return
    trimmed = _trimmed(subject, model, line)
    if trimmed:
        yield information(trimmed)
    length = _accept_length(subject)
    if prediction.at(length).ordinary <= line.plain_speed.ordinary:
        yield warning(
            f"at accept length {length:.2f} NEXTN with K={prediction.draft_tokens} is not expected to be "
            "faster than plain decoding here: the verify pass reads more experts than the drafts save"
        )
    if subject.situation.accept_length is None:
        yield information(
            f"accept length {length:.2f} is one to plan with (coding with thinking, 397B); measure your own"
        )


def _trimmed(subject: BackendSubject, model: Model, line: Roofline) -> str:
    """What a draft head of fewer rows would change."""
    rows = 32_768
    if model.shape.vocabulary <= 2 * rows:
        return ""
    work = Workload(
        subject.draft_tokens, line.workload.sequences, line.workload.context, rows, line.workload.cache_bytes
    )
    length = _accept_length(subject)
    fast = length * line.workload.sequences / step_time(model, line.place, work).reading
    return f"with drafts chosen from {rows:,} rows of the output head: at most {_rate(fast)}"


def _speed_table(line: Roofline) -> EvidenceTable:
    """K by accept length; a window of K drafts emits at most K + 1 tokens."""
    lengths = sorted({length for prediction in line.nextn for length, _ in prediction.speeds})
    rows = [("plain", _rate(line.plain_speed.ideal, unit=""), *[""] * (len(lengths) - 1))] if lengths else []
    for prediction in line.nextn:
        speeds = dict(prediction.speeds)
        cells = (_rate(speeds[length].ideal, unit="") if length in speeds else "" for length in lengths)
        rows.append((f"K={prediction.draft_tokens}", *cells))
    return EvidenceTable(
        "tok/s at most, by bytes alone, for each accept length",
        ("", *(f"{length:g}" for length in lengths)),
        tuple(rows),
    )


def _byte_table(line: Roofline) -> EvidenceTable:
    items = sorted(line.plain.traffic.items, key=lambda item: -item.nbytes)
    rows = [(item.label, size_text(int(item.nbytes))) for item in items if item.nbytes]
    rows.append(("all", size_text(int(line.plain.traffic.total))))
    return EvidenceTable("bytes that one plain token reads on each GPU", ("part", "bytes"), tuple(rows))


def _measured(subject: BackendSubject, share: MeasuredShare) -> EvidenceItem:
    gpu = subject.situation.gpu
    gpus = f"{count_text(subject.situation.tensor_parallel, 'GPU')}" + (f" ({gpu.title})" if gpu else "")
    return EvidenceItem(
        check="measured-speed",
        claim=f"{_rate(share.measured)} are possible on {gpus}.",
        verdict=Verdict.PROVEN if share.possible else Verdict.DISPROVED,
        expected=f"no more than {_rate(share.bound)}, which bytes and bandwidth allow",
        observed=_share_text(share),
        notes=tuple(_suspect_notes(share)),
    )


def _share_text(share: MeasuredShare) -> str:
    if not share.possible:
        return (
            f"{_rate(share.measured)} is {share.measured / share.bound:.1f} times the bound: the "
            "measurement, the number of requests, or the GPU is not as it was said"
        )
    parts = [f"{share.of_plain:.0%} of the bound of plain decoding"]
    if share.of_nextn is not None:
        given = "measured" if share.accept_length_given else "planned"
        parts.append(
            f"{share.of_nextn:.0%} of the bound of NEXTN with K={share.draft_tokens} at the {given} accept "
            f"length {share.accept_length:.2f}"
        )
    parts.append(f"{share.of_ordinary:.0%} of what an ordinary stack reaches so")
    return f"{_rate(share.measured)} is {', '.join(parts)}"


def _suspect_notes(share: MeasuredShare) -> Iterator[Note]:
    if not share.possible or share.is_ordinary:
        return
    fitting = [suspect for suspect in share.suspects if suspect.fits]
    if not fitting:
        yield warning(
            "no usual cause explains so low a number by itself or with another: look for other load on the "
            "GPUs, weights in host memory, or another model behind the server"
        )
    shown = (*fitting, *(s for s in share.suspects if not s.fits))[:_SUSPECTS_SHOWN]
    for number, suspect in enumerate(shown, 1):
        yield warning(_suspect_text(number, suspect))


def _suspect_text(number: int, suspect: Suspect) -> str:
    fits = "fits the number" if suspect.fits else "would not be enough by itself"
    return (
        f"suspect {number}: {suspect.name} (leads to {suspect.slowest:,.0f} to {suspect.fastest:,.0f} tok/s, "
        f"{fits}): {suspect.why}. Check: {suspect.check}"
    )


def _open(check: str, subject: BackendSubject) -> EvidenceItem:
    claim = {
        "roofline": "Bytes and bandwidth bound the speed of decoding here.",
        "measured-speed": "The measured speed is possible here.",
    }[check]
    reason = subject.shape_problem or "the sizes of the weights are not known"
    return EvidenceItem(
        check, claim, Verdict.UNKNOWN, "sizes of all weights and layers", "not computed", reason=reason
    )


def _rate(value: float, unit: str = " tok/s") -> str:
    return f"{value:,.0f}{unit}" if value >= 10 else f"{value:.1f}{unit}"
