"""Several chains about one checkpoint, side by side: what differs between stacks comes first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.item import EvidenceItem
from draftproof.evidence.verdict import Verdict, combine


class Agreement(Enum):
    """Whether the columns of a row say the same."""

    DIFFERENT = "different"
    SAME = "same"


@dataclass(frozen=True)
class Cell:
    """What one chain says about a link or a claim.

    Attributes:
        verdict: of the link or the claim.
        reason: why it is not PROVEN, in one sentence; empty when it is.
        counts: False after a broken link of that chain.
    """

    verdict: Verdict
    reason: str
    counts: bool


@dataclass(frozen=True)
class ComparisonRow:
    """One link, or one claim of it, in every chain.

    Attributes:
        link: which link.
        check: stable name of the claim; empty for the link as a whole.
        title: what the row is about, a sentence.
        cells: one a chain, in their order; None where the chain has no such claim.
    """

    link: Link
    check: str
    title: str
    cells: tuple[Cell | None, ...]

    @property
    def agreement(self) -> Agreement:
        """DIFFERENT when two chains that make the claim have different verdicts."""
        verdicts = {cell.verdict for cell in self.cells if cell is not None}
        return Agreement.DIFFERENT if len(verdicts) > 1 else Agreement.SAME

    @property
    def holds_everywhere(self) -> bool:
        """Every chain that makes the claim has it PROVEN."""
        return all(cell is None or cell.verdict is Verdict.PROVEN for cell in self.cells)


@dataclass(frozen=True)
class ComparisonReport:
    """One checkpoint in several stacks.

    Attributes:
        chains: one a stack, in the order in which they were asked for; links 1 and 2 are the same in all.

    Raises:
        ValueError: fewer than two chains, or one about another checkpoint.
    """

    chains: tuple[ChainReport, ...]

    def __post_init__(self) -> None:
        if len(self.chains) < 2:
            raise ValueError("a comparison needs two chains")
        if len({(chain.subject.name, chain.subject.location) for chain in self.chains}) > 1:
            raise ValueError("chains about different checkpoints cannot be compared")

    @property
    def labels(self) -> tuple[str, ...]:
        """Heads of the columns: "SGLang 0.5.12". Two stacks of one version are told apart by their place."""
        deployments = [chain.subject.deployment for chain in self.chains]
        names = [deployment.stack_label if deployment else "" for deployment in deployments]
        return tuple(
            f"{name} ({deployment.origin})" if deployment and names.count(name) > 1 else name or "no stack"
            for name, deployment in zip(names, deployments, strict=True)
        )

    @property
    def verdict(self) -> Verdict:
        """PROVEN when every chain is; DISPROVED when one is; else UNKNOWN."""
        return combine(chain.verdict for chain in self.chains)

    @property
    def exit_code(self) -> int:
        """0 only when the chain holds in every stack; 1 when it is broken in one; else 3."""
        return self.verdict.exit_code

    @property
    def summary(self) -> str:
        """One sentence under the verdict."""
        parts = []
        for verdict, words in _WORDS.items():
            names = [
                label
                for label, chain in zip(self.labels, self.chains, strict=True)
                if chain.verdict is verdict
            ]
            if names:
                parts.append(f"{words} {', '.join(names)}")
        return "; ".join(parts)

    @property
    def shared_links(self) -> tuple[LinkReport, ...]:
        """Reports that are the same in every chain: those of the checkpoint itself."""
        first, *others = self.chains
        return tuple(
            report for report in first.links if all(_report(chain, report.link) is report for chain in others)
        )

    @property
    def link_rows(self) -> tuple[ComparisonRow, ...]:
        """Every link that was run, in order."""
        return tuple(
            ComparisonRow(
                link,
                "",
                link.definition.holds_when,
                tuple(_link_cell(chain, link) for chain in self.chains),
            )
            for link in Link
            if any(_report(chain, link) for chain in self.chains)
        )

    @property
    def claim_rows(self) -> tuple[ComparisonRow, ...]:
        """Every claim: first those that differ, then those that hold nowhere, then the others, by link."""
        rows = [row for link in Link for row in self._claims_of(link)]
        return tuple(sorted(rows, key=lambda row: (row.agreement is Agreement.SAME, row.holds_everywhere)))

    def _claims_of(self, link: Link) -> tuple[ComparisonRow, ...]:
        reports = [_report(chain, link) for chain in self.chains]
        titles: dict[str, str] = {}
        for report in reports:
            for item in report.items if report else ():
                titles.setdefault(item.check, item.claim)
        return tuple(
            ComparisonRow(
                link,
                check,
                title,
                tuple(
                    _claim_cell(report, check, chain)
                    for report, chain in zip(reports, self.chains, strict=True)
                ),
            )
            for check, title in titles.items()
        )


_WORDS = {
    Verdict.PROVEN: "holds in",
    Verdict.DISPROVED: "broken in",
    Verdict.UNKNOWN: "open in",
}


def _report(chain: ChainReport, link: Link) -> LinkReport | None:
    return next((report for report in chain.links if report.link is link), None)


def _link_cell(chain: ChainReport, link: Link) -> Cell | None:
    report = _report(chain, link)
    if report is None:
        return None
    reason = "" if report.verdict is Verdict.PROVEN else report.summary
    return Cell(report.verdict, reason, chain.counts(report))


def _claim_cell(report: LinkReport | None, check: str, chain: ChainReport) -> Cell | None:
    """Claims of one name are judged together, by the first that decides."""
    items = [item for item in report.items if item.check == check] if report else []
    if report is None or not items:
        return None
    verdict = combine(item.verdict for item in items)
    deciding = next(item for item in items if item.verdict is verdict)
    return Cell(verdict, _why(deciding), chain.counts(report))


def _why(item: EvidenceItem) -> str:
    return "" if item.verdict is Verdict.PROVEN else item.reason or item.observed
