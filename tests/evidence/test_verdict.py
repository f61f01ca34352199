"""Three verdicts, and the one that several of them make."""

import pytest

from draftproof.evidence import Verdict, combine

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([PROVEN], PROVEN),
        ([PROVEN, PROVEN], PROVEN),
        ([PROVEN, UNKNOWN], UNKNOWN),
        ([PROVEN, DISPROVED], DISPROVED),
        ([UNKNOWN, DISPROVED], DISPROVED),
        ([], UNKNOWN),
    ],
)
def test_one_false_claim_disproves_and_one_open_claim_leaves_open(verdicts, together):
    assert combine(verdicts) is together


def test_exit_codes_are_those_of_the_verdicts():
    assert [verdict.exit_code for verdict in (PROVEN, DISPROVED, UNKNOWN)] == [0, 1, 3]
