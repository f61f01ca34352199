"""Link 5: the kernels that will be chosen are right for this GPU, everything fits, and how fast it can be."""

from __future__ import annotations

import time
from collections.abc import Iterator

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.evidence import EvidenceItem, Link, LinkReport, Note, Verdict, information
from draftproof.evidence.quantities import count_text, size_text
from draftproof.hardware.gpu import Gpu, LinkKind
from draftproof.hardware.parallel import divisions, possible_ranks
from draftproof.hardware.survey import SurveyRow, survey
from draftproof.links.backend_subject import BackendSubject, StackKernels, subject_for
from draftproof.links.defect_claims import defect_items
from draftproof.links.kernel_claims import kernel_items, open_requirements
from draftproof.links.memory_claims import memory_items, most_states
from draftproof.links.progress import NoProgress, Progress
from draftproof.links.roofline_claims import roofline_items
from draftproof.stacks.defect import DefectLink
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation

_PROBE = "nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv"


def check_backend(
    checkpoint: Checkpoint | ServedCheckpoint,
    situation: Situation,
    kernels: StackKernels | None = None,
    progress: Progress | None = None,
) -> LinkReport:
    """Runs link 5. Without a stack or a GPU the claims about them are open, and the others are made.

    Args:
        checkpoint: the files, or what a stack gets to see of them.
        situation: GPU, ranks, K, context, concurrency, and a measured speed when there is one.
        kernels: what the stack's rules found; None when no stack was named.
        progress: is told how far the link is.
    """
    start = time.perf_counter()
    progress = progress or NoProgress()
    step = f"backends of {kernels.stack.label}" if kernels else "memory and speed"
    progress.advance(step, 0, 1)
    subject = subject_for(checkpoint, situation, kernels)
    items = tuple(_items(subject))
    progress.advance(step, 1, 1)
    return LinkReport(Link.BACKEND, items, time.perf_counter() - start, tuple(_limits(subject)))


def _items(subject: BackendSubject) -> Iterator[EvidenceItem]:
    yield _gpu_known(subject)
    yield from kernel_items(subject)
    if subject.kernels is not None:
        yield from defect_items(subject.kernels.root, DefectLink.BACKEND, subject.kernels.facts.defects)
    yield from _division_items(subject)
    yield from memory_items(subject)
    yield from roofline_items(subject)


def _limits(subject: BackendSubject) -> Iterator[str]:
    needs = open_requirements(subject)
    if needs:
        yield needs
    if subject.situation.gpu is not None:
        yield "the predicted speed: it is a bound and an expectation, to be measured by link 7"


def _gpu_known(subject: BackendSubject) -> EvidenceItem:
    gpu = subject.situation.gpu
    return EvidenceItem(
        check="gpu-known",
        claim="The GPU's compute capability, memory and bandwidth are known.",
        verdict=Verdict.UNKNOWN if gpu is None else Verdict.PROVEN,
        expected="a GPU of the table, or --sm, --memory and --bandwidth",
        observed="no GPU was named" if gpu is None else _gpu_text(gpu, subject.situation.tensor_parallel),
        command=_PROBE,
        reason="no GPU was named: --gpu NAME, or --sm 120 --memory 96GB --bandwidth 1.8TB/s"
        if gpu is None
        else "",
        notes=tuple(_gpu_notes(subject)),
    )


def _gpu_notes(subject: BackendSubject) -> Iterator[Note]:
    """How its GPUs are connected; without a GPU, what the model would take of those in the table."""
    gpu, model = subject.situation.gpu, subject.model
    if gpu is not None and subject.situation.tensor_parallel > 1:
        yield information(_link_text(gpu))
    if gpu is None and model is not None:
        context = min(subject.situation.context, subject.max_position)
        rows = survey(
            model, most_states(subject), subject.draft_tokens, context, subject.situation.accept_length
        )
        yield from (information(_row_text(row, subject.draft_tokens)) for row in rows if row.ranks)


def _row_text(row: SurveyRow, draft_tokens: int) -> str:
    gpu = row.gpu
    text = (
        f"{row.ranks} x {gpu.title} (--gpu {gpu.key}, {size_text(gpu.memory_bytes)}, "
        f"{gpu.reachable_bandwidth.value / 1e12:.2f} TB/s, {gpu.link.words})"
    )
    if row.plain is not None:
        text += f": plain decoding at most {row.plain.ideal:,.0f} tok/s"
    if row.nextn is not None:
        text += f", NEXTN with K={draft_tokens} at most {row.nextn.ideal:,.0f}"
    return text


def _gpu_text(gpu: Gpu, ranks: int) -> str:
    bandwidth = gpu.reachable_bandwidth
    return (
        f"{ranks} x {gpu.title}: {gpu.architecture}, {size_text(gpu.memory_bytes)} ({gpu.memory.source}), "
        f"{bandwidth.value / 1e12:.2f} TB/s ({bandwidth.source})"
    )


def _link_text(gpu: Gpu) -> str:
    speed = f"{gpu.link.bandwidth / 1e9:.0f} GB/s in one direction"
    hint = "; check with nvidia-smi topo -m" if gpu.link.kind is LinkKind.PCIE else ""
    return f"GPUs are taken to be connected by {gpu.link.words}, {speed}{hint}"


def _division_items(subject: BackendSubject) -> Iterator[EvidenceItem]:
    """One claim for each thing that ranks must divide."""
    ranks, model = subject.situation.tensor_parallel, subject.model
    if ranks == 1:
        yield _one_rank()
        return
    if model is None:
        yield EvidenceItem(
            check="tensor-parallel-divides",
            claim=f"The model divides over {ranks} GPUs.",
            verdict=Verdict.UNKNOWN,
            expected="heads and matrices that divide",
            observed="not computed",
            reason=subject.shape_problem or "the sizes of the weights are not known",
        )
        return
    possible = ", ".join(str(each) for each in possible_ranks(model.shape, model.weights))
    for each in divisions(model.shape, model.weights, ranks):
        yield EvidenceItem(
            check=each.check,
            claim=each.claim,
            verdict=Verdict.PROVEN if each.holds else Verdict.DISPROVED,
            expected=each.expected,
            observed=each.observed,
            where=(subject.field(each.field),),
            command=subject.commands.field("config.json", each.field),
            notes=() if each.holds else (information(f"--tp that divide everything: {possible}"),),
        )


def _one_rank() -> EvidenceItem:
    return EvidenceItem(
        check="tensor-parallel-divides",
        claim=f"The model divides over {count_text(1, 'GPU')}.",
        verdict=Verdict.PROVEN,
        expected="nothing to divide",
        observed="one GPU holds every layer whole",
    )
