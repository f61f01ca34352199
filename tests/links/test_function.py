"""Link 6 tells the ways apart in which speculation can fail to work, from answers alone."""

from __future__ import annotations

import pytest

from draftproof.evidence import Verdict
from draftproof.links.function import check_function, compare
from draftproof.links.running_engine import Arm, Difference, DraftCounts, Generated, Prompt, Sampling

PROMPTS = (Prompt("first", "code", "def f("), Prompt("second", "prose", "It was"))
SAMPLINGS = (Sampling(0.0, 1, 8), Sampling(0.8, 1, 8))
HEALTHY = DraftCounts(10, (10, 10, 10), (8, 5, 3))


class PlayedEngine:
    """Plays answers: the same text in both arms, and the drafts and the difference that a test wants."""

    name = "played"
    draft_tokens = 3

    def __init__(self, drafts=HEALTHY, speculative=(1, 2, 3), difference=None):
        self.drafts = drafts
        self.speculative = speculative
        self.difference = difference

    def generate(self, prompt, sampling, arm):
        if arm is Arm.PLAIN:
            return Generated((1, 2, 3), "abc", 1.0, DraftCounts(3, (), ()))
        return Generated(self.speculative, "abc", 0.5, self.drafts)

    def explain(self, prompt, sampling, plain, speculative):
        return self.difference


def report(engine):
    return check_function(
        engine, compare(engine, PROMPTS, SAMPLINGS, lambda comparison: None), "command", 0.0
    )


def items(engine):
    return {item.check: item for item in report(engine).items}


def test_a_working_head_is_proven_with_its_accept_length_and_every_position():
    found = report(PlayedEngine())
    assert found.verdict is Verdict.PROVEN
    accepted = items(PlayedEngine())["drafts-accepted"].observed
    assert "accept length 2.60" in accepted
    assert "1: 32/40 (80%), 2: 20/40 (50%), 3: 12/40 (30%)" in accepted


def test_never_drafted():
    found = items(PlayedEngine(DraftCounts(10, (), ())))
    assert found["drafts-made"].verdict is Verdict.DISPROVED
    assert "speculation is not active" in found["drafts-made"].observed
    assert found["drafts-accepted"].verdict is Verdict.DISPROVED


def test_drafted_but_never_accepted():
    found = items(PlayedEngine(DraftCounts(10, (10, 10, 10), (0, 0, 0))))
    assert found["drafts-made"].verdict is Verdict.PROVEN
    assert found["drafts-accepted"].verdict is Verdict.DISPROVED
    assert "none accepted" in found["drafts-accepted"].observed


def test_accepted_at_the_first_position_only():
    found = items(PlayedEngine(DraftCounts(10, (10, 10, 10), (8, 0, 0))))["drafts-accepted"]
    assert found.verdict is Verdict.DISPROVED
    assert "nothing accepted from position 2 on" in found.observed


def test_a_head_that_hardly_helps_is_a_warning():
    (note,) = items(PlayedEngine(DraftCounts(1000, (1000, 900, 800), (9, 1, 1))))["drafts-accepted"].warnings
    assert "hardly helps" in note.text


def test_a_different_text_is_disproved_with_the_token_where_it_parts():
    found = items(PlayedEngine(speculative=(1, 9, 3), difference=Difference(1, gap=0.5, noise=1e-6)))
    for check in ("same-text-0", "same-text-0.8"):
        assert found[check].verdict is Verdict.DISPROVED
        assert "first from output token 1 on" in found[check].observed


def test_a_difference_that_rounding_explains_is_named_and_no_defect():
    found = items(PlayedEngine(speculative=(1, 9, 3), difference=Difference(1, gap=1e-6, noise=1e-6)))
    assert found["same-text-0"].verdict is Verdict.PROVEN
    assert any("near-ties" in note.text for note in found["same-text-0"].notes)


def test_an_engine_that_answers_nothing_does_not_run():
    found = items(PlayedEngine(speculative=(), difference=Difference(0, gap=1.0, noise=0.0)))
    assert found["runs"].verdict is Verdict.DISPROVED


@pytest.mark.parametrize(
    ("gap", "noise", "near"), [(1e-6, 1e-6, True), (2e-6, 1e-6, True), (3e-6, 1e-6, False), (0.1, 0.0, False)]
)
def test_a_near_tie_is_a_gap_of_at_most_twice_the_rounding(gap, noise, near):
    assert Difference(0, gap, noise).is_near_tie is near
