"""Links made of evidence, and the chain made of links."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.evidence.chain_links import Link
from draftproof.evidence.item import EvidenceItem, Note
from draftproof.evidence.printable import make_printable
from draftproof.evidence.verdict import Verdict, combine


@dataclass(frozen=True)
class LinkReport:
    """What was found about one link.

    Attributes:
        link: which one.
        items: the evidence; the verdict follows from it alone.
        seconds: wall time that the link took.
        limits: what this run did not look at ("values outside the sample"), clauses after "does not prove".
    """

    link: Link
    items: tuple[EvidenceItem, ...]
    seconds: float
    limits: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """PROVEN when every claim is."""
        return combine(item.verdict for item in self.items)

    @property
    def deciding(self) -> EvidenceItem | None:
        """The first claim that keeps the link from being PROVEN; None when it is PROVEN or has no claims."""
        verdict = self.verdict
        if verdict is Verdict.PROVEN:
            return None
        return next((item for item in self.items if item.verdict is verdict), None)

    @property
    def summary(self) -> str:
        """One sentence: why the verdict is what it is."""
        item = self.deciding
        if item is not None:
            return item.reason or item.observed
        return self.link.definition.holds_when if self.items else "Nothing was looked at."

    @property
    def warnings(self) -> tuple[Note, ...]:
        """Every note of the link's evidence that warns."""
        return tuple(note for item in self.items for note in item.warnings)


@dataclass(frozen=True)
class Deployment:
    """Where the checkpoint is to be served, as far as the user said.

    Attributes:
        stack: name of the serving stack: "SGLang"; empty when none was named.
        version: its version; empty when it is not known.
        origin: where its source was found; empty without a stack.
        gpu: title of the GPU; empty when none was named.
        tensor_parallel: GPUs that a layer is split over.
    """

    stack: str = ""
    version: str = ""
    origin: str = ""
    gpu: str = ""
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        make_printable(self, "stack", "version", "origin", "gpu")

    @property
    def stack_label(self) -> str:
        """Name and version: "SGLang 0.5.12"; empty without a stack."""
        return f"{self.stack} {self.version or '(version unknown)'}" if self.stack else ""

    @property
    def gpu_label(self) -> str:
        """Number and name: "8 x H200"; empty without a GPU."""
        return f"{self.tensor_parallel} x {self.gpu}" if self.gpu else ""

    @property
    def label(self) -> str:
        """All of it: "SGLang 0.5.12 on 8 x H200"."""
        return " on ".join(part for part in (self.stack_label, self.gpu_label) if part)


@dataclass(frozen=True)
class Subject:
    """What the chain is about.

    Attributes:
        name: as the user gave it: a folder, a repo id, "tiny".
        location: where it was read: an absolute path or a URL.
        architecture: the config's `architectures[0]`; empty when it is not known.
        revision: commit of a repository; empty for a folder.
        deployment: stack and GPUs; None when neither was named.
    """

    name: str
    location: str
    architecture: str = ""
    revision: str = ""
    deployment: Deployment | None = None

    def __post_init__(self) -> None:
        make_printable(self, "name", "location", "architecture", "revision")


@dataclass(frozen=True)
class ChainReport:
    """All links that were run, in order, and the one verdict they make.

    Attributes:
        subject: the checkpoint.
        links: reports in chain order, one a link.
        version: draftproof's version.
        started_at: UTC time, ISO 8601.
        arguments: the command line that made this report.

    Raises:
        ValueError: links out of order, or one of them twice.
    """

    subject: Subject
    links: tuple[LinkReport, ...]
    version: str
    started_at: str
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = [report.link.number for report in self.links]
        if numbers != sorted(set(numbers)):
            raise ValueError(f"links must be in order, each once: {numbers}")

    @property
    def broken_at(self) -> LinkReport | None:
        """The first disproved link; links after it do not count."""
        return next((report for report in self.links if report.verdict is Verdict.DISPROVED), None)

    def counts(self, report: LinkReport) -> bool:
        """Whether a link's verdict counts: no earlier link is broken."""
        broken = self.broken_at
        return broken is None or report.link.number <= broken.link.number

    @property
    def verdict(self) -> Verdict:
        """PROVEN when every link that was run is; a broken link decides whatever comes after it."""
        return combine(report.verdict for report in self.links if self.counts(report))

    @property
    def exit_code(self) -> int:
        """0 proven, 1 disproved, 3 not enough evidence."""
        return self.verdict.exit_code

    @property
    def not_run(self) -> tuple[Link, ...]:
        """The links that nobody asked for, in order."""
        run = {report.link for report in self.links}
        return tuple(link for link in Link if link not in run)

    @property
    def summary(self) -> str:
        """One sentence under the verdict."""
        broken = self.broken_at
        if broken is not None:
            return f"broken at link {broken.link.number} ({broken.link.value}): {broken.summary}"
        open_link = next((report for report in self.links if report.verdict is Verdict.UNKNOWN), None)
        if open_link is not None:
            return f"open at link {open_link.link.number} ({open_link.link.value}): {open_link.summary}"
        if not self.links:
            return "nothing was looked at"
        names = ", ".join(f"{report.link.number} {report.link.value}" for report in self.links)
        return f"every link that was run holds: {names}"

    @property
    def does_not_prove(self) -> tuple[str, ...]:
        """What remains open after this report, as clauses after "does not prove".

        Links that were not run come on top; see `not_run`.
        """
        own = tuple(limit for report in self.links for limit in report.limits)
        closing = tuple(report.link.definition.does_not_prove for report in self.links[-1:])
        return own + closing
