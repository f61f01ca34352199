"""Both stacks say the same about the ranks of a command."""

from __future__ import annotations

import pytest

from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.parallel_findings import RanksGiven, rank_findings
from draftproof.stacks.place import Place
from draftproof.stacks.situation import Situation
from tests.support import sglang_launch, vllm_launch
from tests.support.sglang_launch import situation

PLACE = Place("stack/arguments.py", 3)


def given(ranks: int, is_spread: bool = False) -> RanksGiven:
    return RanksGiven(ranks, "--tp", f"--tp {ranks}", (PLACE,), is_spread)


@pytest.mark.parametrize(
    ("ranks", "seen"),
    [
        (4, "4 of 8 GPUs, while memory and speed are judged for all of them"),
        (16, "16 GPUs, while memory and speed are judged for 8"),
    ],
)
def test_another_number_than_the_named_one_warns(ranks: int, seen: str) -> None:
    (finding,) = rank_findings(given(ranks), situation("h200", 8))
    assert (finding.check, finding.ruling, finding.subject) == ("ranks-agree", Ruling.WARNS, f"--tp {ranks}")
    assert (finding.observed, finding.remedy, finding.places) == (seen, "--tp 8", (PLACE,))


def test_the_named_number_is_nothing_to_say() -> None:
    assert not list(rank_findings(given(8), situation("h200", 8)))


def test_other_ways_to_spread_use_the_rest() -> None:
    assert not list(rank_findings(given(4, is_spread=True), situation("h200", 8)))


def test_without_a_gpu_no_number_was_named() -> None:
    assert not list(rank_findings(given(4), Situation()))


def test_both_stacks_use_the_same_words() -> None:
    where = situation("h200", 8)
    one = sglang_launch.judged("0.5.23", f"{sglang_launch.START} --tp 4", where)
    other = vllm_launch.judged("0.33.0", "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 4", where=where)
    (first,), (second,) = (sglang_launch.findings(each, "ranks-agree") for each in (one, other))
    assert (first.claim, first.observed, first.ruling) == (second.claim, second.observed, second.ruling)
