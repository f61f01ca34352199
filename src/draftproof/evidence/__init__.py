"""Claims, verdicts, the chain, and reports rendered from evidence alone."""

from draftproof.evidence.chain import ChainReport, LinkReport, Subject
from draftproof.evidence.chain_links import Link, LinkDefinition
from draftproof.evidence.item import EvidenceItem, Location, Note, Severity, information, warning
from draftproof.evidence.verdict import Verdict, combine

__all__ = [
    "ChainReport",
    "EvidenceItem",
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
