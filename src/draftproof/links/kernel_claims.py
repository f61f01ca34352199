"""Claims about the kernels that a stack chooses on a GPU, and about what must be installed for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from draftproof.evidence import EvidenceItem, Note, Verdict, information, warning
from draftproof.evidence.quantities import listing
from draftproof.hardware.gpu import Gpu
from draftproof.links.backend_subject import BackendSubject
from draftproof.links.landing_claims import promised
from draftproof.links.stack_places import locations, show_lines
from draftproof.stacks.backend_facts import KernelChoice, Phase
from draftproof.stacks.launch_facts import Requirement

_NOT_WORD = re.compile(r"[^a-z0-9]+")


def kernel_items(subject: BackendSubject) -> Iterator[EvidenceItem]:
    """A claim for each kernel, and one for what must be installed."""
    if subject.kernels is None:
        yield _open_kernels("no serving stack was named: --stack sglang, vllm or native", subject)
        return
    if subject.situation.gpu is None:
        yield _open_kernels("the GPU is not known, so that nothing follows about its kernels", subject)
        return
    choices = subject.kernels.facts.choices
    if not choices:
        yield _open_kernels(
            f"nothing was found out about the kernels of {subject.kernels.stack.label}", subject
        )
    for choice in _merged(choices):
        yield _kernel(subject.kernels.root, subject.situation.gpu, choice)
    yield from _requirements(subject.kernels.root, requirements_of(subject))


def requirements_of(subject: BackendSubject) -> tuple[Requirement, ...]:
    """What must be installed, each thing once."""
    if subject.kernels is None:
        return ()
    facts = subject.kernels.facts
    found = (*facts.requirements, *(need for choice in facts.choices for need in choice.needs))
    return tuple({requirement.name: requirement for requirement in reversed(found)}.values())[::-1]


def open_requirements(subject: BackendSubject) -> str:
    """What is needed and could not be looked for, as a clause after "does not prove"; empty when nothing."""
    names = [need.name for need in requirements_of(subject) if need.present is None]
    return f"that {listing(names)} will be installed where it is served" if names else ""


def _open_kernels(reason: str, subject: BackendSubject) -> EvidenceItem:
    label = subject.kernels.stack.label if subject.kernels else "The stack"
    return EvidenceItem(
        check="kernels-chosen",
        claim=f"{label} chooses kernels that this GPU can run.",
        verdict=Verdict.UNKNOWN,
        expected="a kernel for each group of modules, and its condition in the source",
        observed="nothing was looked at",
        reason=reason,
    )


def _merged(choices: Sequence[KernelChoice]) -> Iterator[KernelChoice]:
    """Groups of which everything is said in the same words are one claim."""
    groups: dict[KernelChoice, list[str]] = {}
    for choice in choices:
        groups.setdefault(replace(choice, group=""), []).append(choice.group)
    for choice, names in groups.items():
        yield replace(choice, group=", ".join(dict.fromkeys(names)))


def _kernel(root: Path, gpu: Gpu, choice: KernelChoice) -> EvidenceItem:
    verdict, reason = _judge(choice)
    backend = choice.backend.value
    places = (*choice.backend.places, *choice.valid.places)
    stored = f" in {choice.precision}" if choice.precision else ""
    when = "" if choice.phase is Phase.ANY else f", {choice.phase.value}"
    observed = [f"{backend}: {choice.backend.sentence}" if backend else choice.backend.sentence]
    if choice.valid.sentence and choice.valid.sentence != choice.backend.sentence:
        observed.append(choice.valid.sentence)
    first = choice.group.partition(",")[0]
    words = f"{choice.operation.value} {first} {choice.phase.value if when else ''}"
    item = EvidenceItem(
        check=f"kernel-{_NOT_WORD.sub('-', words.lower()).strip('-')}",
        claim=f"The {choice.operation.value} kernel for {choice.group}{stored}{when} "
        f"runs on {gpu.architecture}.",
        verdict=verdict,
        expected=f"a backend whose own conditions admit {gpu.architecture}",
        observed="; ".join(observed),
        where=locations(places),
        command=show_lines(root, places),
        reason=reason,
        notes=tuple(_kernel_notes(gpu, choice)),
    )
    return promised(item) if choice.is_promised else item


def _judge(choice: KernelChoice) -> tuple[Verdict, str]:
    if not choice.backend.understood or choice.backend.value is None:
        return Verdict.UNKNOWN, choice.backend.sentence
    if choice.valid.value is None:
        return Verdict.UNKNOWN, choice.valid.sentence
    return (Verdict.PROVEN if choice.valid.value else Verdict.DISPROVED), ""


def _kernel_notes(gpu: Gpu, choice: KernelChoice) -> Iterator[Note]:
    if choice.native is False:
        backend = choice.backend.value or "this kernel"
        text = f"{backend} converts the weights of {choice.group} before it multiplies"
        able = gpu.has_native_fp4 if "FP4" in choice.precision else gpu.has_native_fp8
        if able and choice.precision:
            yield warning(f"{text}, although {gpu.architecture} multiplies them as they are")
        else:
            yield information(f"{text}: {gpu.architecture} has no units for them")
    if choice.explicit:
        yield information(f"ask for it by name: {choice.explicit}")


def _requirements(root: Path, needs: Sequence[Requirement]) -> Iterator[EvidenceItem]:
    """One claim about everything that could be looked for; the rest is a limit of the report."""
    looked = [need for need in needs if need.present is not None]
    if not looked:
        return
    missing = [need for need in looked if not need.present]
    places = [place for need in missing or looked for place in need.places]
    names = [f"{need.name} {need.version}".strip() for need in looked]
    yield EvidenceItem(
        check="requirements-present",
        claim="What the chosen kernels need is installed.",
        verdict=Verdict.DISPROVED if missing else Verdict.PROVEN,
        expected=listing(names, 8),
        observed="; ".join(f"{need.name} is missing: {need.reason}" for need in missing)
        or "all of it is there",
        where=locations(places),
        command=missing[0].command if missing else show_lines(root, places),
        notes=tuple(information(f"{need.name}: {need.command}") for need in missing if need.command),
    )
