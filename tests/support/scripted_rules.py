"""A stack whose rules answer what a test says, for what is built on top of rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, Operation, Phase
from draftproof.stacks.code_facts import Fate, HeadSupport, Noticing, TensorLanding
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import (
    EnvironmentVariable,
    LaunchFinding,
    LaunchJudgement,
    LaunchPlan,
    OptionTable,
    PlannedFlag,
    Requirement,
    ResolvedLaunch,
    Ruling,
)
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack

CLASS_PLACE = Place("sglang/srt/models/qwen3_5_mtp.py", 1)

_LANDING = TensorLanding(
    "mtp.fc.weight", 65, Fate.LANDS, "model.fc.weight", "", "BF16", "BF16", (CLASS_PLACE,), "it lands"
)


@dataclass
class ScriptedRules:
    """`StackRules` that hold, except where a test says otherwise; remembers what it was asked.

    Attributes:
        without_class: versions whose source has no class for the head.
        refused: words of a command that break link 4.
        requirements: of the plan.
    """

    without_class: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    judged: list[Command] = field(default_factory=list)
    situations: list[Situation] = field(default_factory=list)

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        there: Reading[str] = found("HeadMTP", "class HeadMTP", CLASS_PLACE)
        missing: Reading[str] = absent("no class HeadMTP in sglang/srt/models")
        return HeadSupport(
            target=there,
            draft_architecture=there,
            draft_class=missing if stack.version in self.without_class else there,
            registration=there,
            implementation=there,
            head_precision=there,
            landings=found((_LANDING,), "every tensor was followed", CLASS_PLACE),
            unwritten=found((), "every parameter is written", CLASS_PLACE),
            noticing=found(Noticing.ERROR, "stops the start", CLASS_PLACE),
            defects=(),
        )

    def options(self, stack: Stack) -> Reading[OptionTable]:
        return found(OptionTable(()), "no options")

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        self.judged.append(command)
        self.situations.append(situation)
        findings = tuple(
            LaunchFinding(
                "option-exists",
                str(flag),
                Ruling.BREAKS if flag.name in self.refused else Ruling.HOLDS,
                "Every option exists.",
                "an option of this version",
                "removed" if flag.name in self.refused else "it is one",
            )
            for flag in command.flags
        )
        resolved = ResolvedLaunch(
            found("EAGLE", "NEXTN is EAGLE"), found(3, "three drafts"), found("same", "the target's files")
        )
        return LaunchJudgement(findings, resolved)

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        return LaunchPlan(
            ("python", "-m", "sglang.launch_server"),
            (
                PlannedFlag("--model-path", checkpoint.name, "the checkpoint"),
                PlannedFlag("--note", 'it\'s "quoted" $HOME', "a value that a shell would change"),
                PlannedFlag("--trust", None, "an option without a value", (CLASS_PLACE,)),
            ),
            (EnvironmentVariable("SGLANG_TEST", "a b", "a variable with a blank in its value"),),
            self.requirements,
        )

    def backends(
        self,
        stack: Stack,
        checkpoint: ServedCheckpoint,
        situation: Situation,
        judgement: LaunchJudgement,
    ) -> BackendFacts:
        choice = KernelChoice(
            Operation.ATTENTION,
            "attention",
            "",
            Phase.ANY,
            found("triton", "triton by default", CLASS_PLACE),
            found(True, "admits every GPU", CLASS_PLACE),
            native=True,
        )
        return BackendFacts((choice,), found(StateLayout(5, 4, 4), "five slots", CLASS_PLACE))
