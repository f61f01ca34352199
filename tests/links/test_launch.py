"""Link 4 makes claims of what a stack's rules found about a command, the given or the proposed one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from draftproof.evidence import EvidenceItem, LinkReport, Verdict
from draftproof.links.launch import check_launch
from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.command.command import Command
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import (
    LaunchFinding,
    LaunchJudgement,
    LaunchPlan,
    OptionTable,
    PlannedFlag,
    ResolvedLaunch,
    Ruling,
)
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind

HERE = Place("sglang/srt/server_args.py", 7)
CHECKPOINT = ServedCheckpoint("m", {}, None, None, {}, {})
PLAN = LaunchPlan(
    ("serve",), (PlannedFlag("--tp", "8", "as asked", (HERE,)), PlannedFlag("--fast", None, "it is"))
)
ON = ResolvedLaunch(
    found("EAGLE", "NEXTN is EAGLE", HERE), found(3, "3 drafts"), found("m", "the target's path")
)


@dataclass
class FakeRules:
    """Rules that answer with what they are given, and keep the command that they were asked about."""

    judgement: LaunchJudgement
    asked: list[Command] = field(default_factory=list)

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        raise NotImplementedError

    def options(self, stack: Stack) -> Reading[OptionTable]:
        raise NotImplementedError

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        self.asked.append(command)
        return self.judgement

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        return PLAN

    def backends(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement
    ) -> BackendFacts:
        raise NotImplementedError


def finding(check: str, ruling: Ruling, observed: str, remedy: str = "") -> LaunchFinding:
    return LaunchFinding(check, "--x", ruling, f"claim of {check}.", "expected", observed, remedy, (HERE,))


def report(
    tmp_path: Path, *findings: LaunchFinding, resolved: ResolvedLaunch = ON, text: str = ""
) -> LinkReport:
    stack = Stack(StackKind.SGLANG, "1", SourceTree(tmp_path), "made up")
    rules = FakeRules(LaunchJudgement(findings, resolved))
    return check_launch(CHECKPOINT, stack, rules, command=parse_command(text) if text else None)


def item(made: LinkReport, check: str) -> EvidenceItem:
    return next(entry for entry in made.items if entry.check == check)


def test_without_a_command_the_proposed_one_is_judged_and_shown_flag_by_flag(tmp_path: Path) -> None:
    made = report(tmp_path)
    command = item(made, "command")
    assert command.observed == "proposed: serve --tp 8 --fast"
    assert [note.text for note in command.notes] == [
        "SGLang 1 is not installed here, so its own argument parser was not asked",
        "--tp 8: as asked",
        "--fast: it is",
    ]
    assert made.verdict is Verdict.PROVEN


def test_a_given_command_is_judged_and_the_proposed_one_stands_beside_it(tmp_path: Path) -> None:
    command = item(report(tmp_path, text="--tp 4"), "command")
    assert command.observed == "given: --tp 4"
    assert command.notes[1].text == "proposed instead: serve --tp 8 --fast"


def test_findings_of_one_check_are_one_claim_which_the_gravest_decides(tmp_path: Path) -> None:
    made = report(
        tmp_path,
        finding("option-exists", Ruling.HOLDS, "it is there"),
        finding("option-exists", Ruling.BREAKS, "no such option", "--y"),
        finding("option-exists", Ruling.WARNS, "it is going away", "--z"),
    )
    claim = item(made, "option-exists")
    assert (claim.verdict, claim.observed) == (Verdict.DISPROVED, "--x: no such option")
    assert str(claim.where[0]) == "sglang/srt/server_args.py:7"
    assert f"sed -n '7,18p' {tmp_path}/sglang/srt/server_args.py" in claim.command
    assert [note.text for note in claim.notes] == ["instead: --y", "--x: it is going away; instead: --z"]
    assert [note.text for note in claim.warnings] == ["--x: it is going away; instead: --z"]
    assert made.verdict is Verdict.DISPROVED


def test_a_claim_that_may_be_false_is_not_the_one_that_is_proven(tmp_path: Path) -> None:
    made = report(tmp_path, finding("unwritten-noticed", Ruling.WARNS, "it is off", "--check"))
    claim = item(made, "unwritten-noticed")
    assert claim.verdict is Verdict.PROVEN
    assert claim.claim == "What is said against this breaks nothing: claim of unwritten-noticed."
    assert [note.text for note in claim.warnings] == ["--x: it is off; instead: --check"]


def test_what_is_open_is_said_and_never_proven(tmp_path: Path) -> None:
    made = report(tmp_path, finding("lossless", Ruling.UNKNOWN, "the switch was not found"))
    assert item(made, "lossless").reason == "--x: the switch was not found"
    assert made.verdict is Verdict.UNKNOWN


def test_what_the_stack_changes_unasked_warns_and_what_it_hides_is_open(tmp_path: Path) -> None:
    changed = ResolvedLaunch(
        ON.algorithm, ON.draft_tokens, ON.draft_path, (), (found("48", "at most 48 requests"),)
    )
    known = item(report(tmp_path, resolved=changed), "unchanged")
    assert (known.verdict, known.warnings[0].text) == (Verdict.PROVEN, "at most 48 requests")
    lost = ResolvedLaunch(
        ON.algorithm, ON.draft_tokens, ON.draft_path, (), (not_understood("looked for the hook"),)
    )
    assert item(report(tmp_path, resolved=lost), "unchanged").reason == "looked for the hook"


def test_speculation_that_is_off_breaks_the_link_and_leaves_nothing_else_to_claim(tmp_path: Path) -> None:
    off: ResolvedLaunch = ResolvedLaunch(absent("no algorithm was asked for"), absent(""), absent(""))
    made = report(tmp_path, resolved=off, text="--tp 8")
    assert item(made, "speculation-on").observed == "no algorithm was asked for"
    assert [entry.check for entry in made.items] == ["command", "speculation-on"]
    assert made.verdict is Verdict.DISPROVED


def test_claims_stand_in_the_order_in_which_a_stack_meets_a_command(tmp_path: Path) -> None:
    made = report(
        tmp_path,
        finding("own-claim", Ruling.HOLDS, "a"),
        finding("lossless", Ruling.HOLDS, "b"),
        finding("option-exists", Ruling.HOLDS, "c"),
    )
    checks = [entry.check for entry in made.items]
    assert checks == [
        "command",
        "option-exists",
        "speculation-on",
        "draft-tokens-in-force",
        "draft-weights",
        "lossless",
        "unchanged",
        "own-claim",
    ]
