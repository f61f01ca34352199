"""A choice of kernels reads as a sentence, demotions included."""

from __future__ import annotations

from draftproof.kernels.backend_rules import Backend, BackendRule, rules_in_words
from draftproof.kernels.select import Demotion, DemotionLog, SelectionReport
from draftproof.kernels.selection_words import origin_in_words, selection_lines

RULES = (BackendRule(Backend.CUDA, 8, ("nvfp4", "bf16")), BackendRule(Backend.TRITON))


def report(table: str = "sm90", tested: str = "H200") -> SelectionReport:
    return SelectionReport("SM90", table, tested, {"route": RULES}, DemotionLog())


def test_rules() -> None:
    assert rules_in_words(RULES) == "cuda for nvfp4 and bf16 up to 8 rows, then triton"


def test_where_a_choice_comes_from() -> None:
    assert origin_in_words(report()) == "table sm90, measured on H200"
    assert origin_in_words(report("portable", "")) == "table portable, not tested on such a GPU"
    assert origin_in_words(report("", "")) == "every op by its definition"


def test_demotions_are_counted_lines() -> None:
    found = report()
    for _ in range(2):
        found.demotions.note(Demotion("route", Backend.CUDA, "no NVRTC"))
    assert list(selection_lines(found))[-1] == "  DEMOTED route: cuda: no NVRTC (2 calls)"
