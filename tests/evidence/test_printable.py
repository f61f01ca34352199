"""Names and values from strangers' files cannot repaint a report."""

import pytest

from draftproof.evidence import EvidenceItem, Location, Verdict, warning
from draftproof.evidence.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mtp.fc.weight", "mtp.fc.weight"),
        ("größer 模型", "größer 模型"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc", "a b c"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
    ],
)
def test_only_what_could_harm_is_escaped(text, shown):
    assert printable(text) == shown


def test_evidence_is_printable_however_it_was_made():
    bad = "x\x1b[31m"
    where = (Location(file=bad, tensor=bad),)
    item = EvidenceItem(bad, bad, Verdict.UNKNOWN, bad, bad, where, bad, bad, (warning(bad, *where),))
    assert "\x1b" not in repr(item).replace("\\x1b", "")
    assert str(where[0]) == "x\\x1b[31m: x\\x1b[31m"
