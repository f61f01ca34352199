"""Claims, verdicts, the chain, and reports rendered from evidence alone."""

from draftproof.evidence.chain import ChainReport, Deployment, LinkReport, Subject
from draftproof.evidence.chain_links import Link, LinkDefinition
from draftproof.evidence.comparison import Agreement, Cell, ComparisonReport, ComparisonRow
from draftproof.evidence.item import (
    EvidenceItem,
    EvidenceTable,
    Location,
    Note,
    Severity,
    information,
    warning,
)
from draftproof.evidence.verdict import Verdict, combine

__all__ = [
    "Agreement",
    "Cell",
    "ChainReport",
    "ComparisonReport",
    "ComparisonRow",
    "Deployment",
    "EvidenceItem",
    "EvidenceTable",
    "Link",
    "LinkDefinition",
    "LinkReport",
    "Location",
    "Note",
    "Severity",
    "Subject",
    "Verdict",
    "combine",
    "information",
    "warning",
]
