"""Link 4 in data: a stack's options, a command judged against them, and a command proposed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading


class ValueKind(Enum):
    """What stands after an option."""

    FLAG = "nothing"
    STRING = "a word"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    JSON = "a JSON object"
    LIST = "one or more values"


@dataclass(frozen=True)
class Option:
    """One option of one version.

    Attributes:
        name: as typed: "--speculative-num-steps".
        aliases: other spellings of the same option.
        kind: what its value is.
        choices: the only values allowed; empty when any is.
        default: as the source says it; empty when there is none or it is computed.
        place: where it is declared.
        deprecated: what the source says about its end; empty when it is not deprecated.
    """

    name: str
    aliases: tuple[str, ...]
    kind: ValueKind
    choices: tuple[str, ...]
    default: str
    place: Place
    deprecated: str = ""


@dataclass(frozen=True)
class OptionTable:
    """Every option of the stack's server in one version."""

    options: tuple[Option, ...]

    def get(self, name: str) -> Option | None:
        """The option of that name or alias."""
        return next((option for option in self.options if name in (option.name, *option.aliases)), None)


class Ruling(Enum):
    """What a finding about a command means for link 4."""

    HOLDS = "holds"
    WARNS = "warns"
    BREAKS = "breaks"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class LaunchFinding:
    """One thing about a command.

    Attributes:
        check: stable name: "option-exists", "algorithm-accepted", "draft-tokens-agree", "lossless", ...
        subject: the words of the command that it is about: "--speculative-num-draft-tokens 3".
        ruling: what it means.
        claim: a sentence that can be false.
        expected: what is seen when it holds.
        observed: what was seen.
        remedy: what to type instead; empty when nothing has to change.
        places: lines of the stack's source that decide.
    """

    check: str
    subject: str
    ruling: Ruling
    claim: str
    expected: str
    observed: str
    remedy: str = ""
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class ResolvedLaunch:
    """What the stack makes of a command: the values in force after its own resolution.

    Attributes:
        algorithm: the algorithm in force ("EAGLE" for NEXTN in SGLang, "mtp" in vLLM); absent when
            speculation is off.
        draft_tokens: drafts per verify pass (K) in force.
        draft_path: where the draft's weights are looked for.
        options: further values in force as (option name, value, why), for the backend link: attention
            backend, page size, MoE runner, quantization, maximum of running requests ...
        changed: sentences about what the stack changes without being asked.
        variables: environment variables that the command sets, as (name, value), for selectors that read
            them.
    """

    algorithm: Reading[str]
    draft_tokens: Reading[int]
    draft_path: Reading[str]
    options: tuple[tuple[str, str, str], ...] = ()
    changed: tuple[Reading[str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class LaunchJudgement:
    """A command, flag by flag, and what the stack makes of it.

    Attributes:
        findings: what was found about its words; several may share a check.
        resolved: what is in force after the stack's own resolution. Link 4 makes claims of its own out of it
            ("speculation-on", "draft-tokens-in-force", "draft-weights", "unchanged"), so that findings need
            not repeat them.
        defects: known defects of this link.
    """

    findings: tuple[LaunchFinding, ...]
    resolved: ResolvedLaunch
    defects: tuple[DefectFinding, ...] = ()


@dataclass(frozen=True)
class PlannedFlag:
    """One option of a proposed command.

    Attributes:
        name: the option.
        value: its value; None for an option without one.
        reason: one line: why it is there.
        places: lines of the stack's source, or none when the reason is the checkpoint or the GPU.
    """

    name: str
    value: str | None
    reason: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class EnvironmentVariable:
    """A variable that a proposed command needs."""

    name: str
    value: str
    reason: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Requirement:
    """Something that has to be installed.

    Attributes:
        name: distribution or program: "flashinfer-python", "nvcc".
        version: what the stack asks for; empty for any.
        reason: what fails without it.
        present: True, False, or None when this environment could not be looked at.
        command: how to get it.
        places: lines of the stack's source.
    """

    name: str
    version: str
    reason: str
    present: bool | None
    command: str
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """A proposed command.

    Attributes:
        program: the words before the options: ("python", "-m", "sglang.launch_server").
        flags: the options, in order.
        environment: variables to set.
        requirements: what must be installed for it.
    """

    program: tuple[str, ...]
    flags: tuple[PlannedFlag, ...]
    environment: tuple[EnvironmentVariable, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The command as separate words, without the environment."""
        options = (word for flag in self.flags for word in (flag.name, flag.value) if word is not None)
        return (*self.program, *options)
