"""A proposed launch command with its reasons, and the chain that says whether it holds."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.verdict import Verdict
from draftproof.stacks.launch_facts import LaunchPlan, PlannedFlag, Requirement


@dataclass(frozen=True)
class PlanReport:
    """What `draftproof plan` answers.

    Attributes:
        chain: links 1 to 5 for the proposed command, judged by the rules that judge a user's own.
        plan: the command.
    """

    chain: ChainReport
    plan: LaunchPlan

    @property
    def verdict(self) -> Verdict:
        """Of the chain: a command is worth no more than what it rests on."""
        return self.chain.verdict

    @property
    def exit_code(self) -> int:
        """0 the command holds, 1 it does not, 3 not enough evidence."""
        return self.verdict.exit_code

    @property
    def environment(self) -> tuple[str, ...]:
        """Assignments as a shell reads them: "NAME=value"."""
        return tuple(f"{entry.name}={shlex.quote(entry.value)}" for entry in self.plan.environment)

    @property
    def words(self) -> tuple[str, ...]:
        """The command as separate words, without the environment."""
        return (*self.plan.program, *(word for flag in self.plan.flags for word in flag_words(flag)))

    @property
    def one_line(self) -> str:
        """The command on one line, variables in front."""
        return " ".join((*self.environment, shlex.join(self.words)))

    @property
    def lines(self) -> tuple[str, ...]:
        """The command as lines to paste: the program with what is no option, then one option a line."""
        leading = [flag for flag in self.plan.flags if not _is_option(flag)]
        options = [flag for flag in self.plan.flags if _is_option(flag)]
        program = (*self.plan.program, *(word for flag in leading for word in flag_words(flag)))
        lines = [
            *self.environment,
            shlex.join(program),
            *(f"  {shlex.join(flag_words(flag))}" for flag in options),
        ]
        return (*(f"{line} \\" for line in lines[:-1]), lines[-1])

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """What is known not to be installed."""
        return tuple(need for need in self.plan.requirements if need.present is False)

    @property
    def prediction(self) -> LinkReport | None:
        """Link 5 with memory and roofline; None when no GPU was named."""
        return next((report for report in self.chain.links if report.link is Link.BACKEND), None)


def flag_words(flag: PlannedFlag) -> tuple[str, ...]:
    """The words that a flag stands for; one without a name is its value alone."""
    return tuple(word for word in (flag.name, flag.value) if word)


def _is_option(flag: PlannedFlag) -> bool:
    return flag.name.startswith("-")
