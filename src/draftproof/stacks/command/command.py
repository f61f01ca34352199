"""A launch command as data."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from draftproof.stacks.stack import StackKind


@dataclass(frozen=True)
class Variable:
    """An environment variable that the command sets."""

    name: str
    value: str


@dataclass(frozen=True)
class GivenFlag:
    """One option as it was typed.

    A command line does not say how many words an option takes; only the stack's option table does. Every word
    up to the next option is therefore listed here, and `binding.bind` gives back those that do not belong.

    Attributes:
        name: as typed, without a value: "--tp", "-sc", "--speculative-config.method".
        values: the words after it, up to the next option.
        position: number of its word among the words after the program, from 0.
        attached: the value was attached: "--tp=8".
    """

    name: str
    values: tuple[str, ...]
    position: int
    attached: bool = False

    @property
    def value(self) -> str | None:
        """Its first value; None when it has none."""
        return self.values[0] if self.values else None

    @property
    def base(self) -> str:
        """The name up to the first dot: "--speculative-config" of "--speculative-config.method"."""
        return self.name.partition(".")[0]

    @property
    def path(self) -> tuple[str, ...]:
        """The keys after the first dot: ("method",); empty for an option without dots."""
        rest = self.name.partition(".")[2]
        return tuple(rest.split(".")) if rest else ()

    @property
    def words(self) -> tuple[str, ...]:
        """As separate words, the way it was typed."""
        if self.attached:
            return (f"{self.name}={self.values[0]}", *self.values[1:])
        return (self.name, *self.values)

    def __str__(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True)
class Command:
    """A launch command.

    Attributes:
        environment: variables that it sets, in order; of two with one name the later counts.
        program: the words that start the server, wrappers and containers included: ("python3", "-m",
            "sglang.launch_server"); empty when only options were given.
        flags: the options, in order.
        positionals: words that belong to no option, in order.
        stack: whose server the program starts; None when only options were given.
    """

    environment: tuple[Variable, ...]
    program: tuple[str, ...]
    flags: tuple[GivenFlag, ...]
    positionals: tuple[str, ...] = ()
    stack: StackKind | None = None

    def named(self, *names: str) -> tuple[GivenFlag, ...]:
        """The options typed under one of these names, in order."""
        return tuple(flag for flag in self.flags if flag.name in names)

    def last(self, *names: str) -> GivenFlag | None:
        """The last option typed under one of these names, which is the one that counts for argparse."""
        found = self.named(*names)
        return found[-1] if found else None

    def variable(self, name: str) -> str | None:
        """The value that the command gives an environment variable; None when it sets none."""
        return next((entry.value for entry in reversed(self.environment) if entry.name == name), None)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the program: positionals first, then the options in order."""
        return (*self.positionals, *(word for flag in self.flags for word in flag.words))

    def __str__(self) -> str:
        variables = tuple(f"{entry.name}={shlex.quote(entry.value)}" for entry in self.environment)
        return " ".join((*variables, shlex.join((*self.program, *self.arguments))))
