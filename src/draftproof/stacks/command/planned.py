"""A proposed command in the form in which given ones are judged."""

from __future__ import annotations

from draftproof.stacks.command.command import Command, GivenFlag, Variable
from draftproof.stacks.launch_facts import LaunchPlan
from draftproof.stacks.stack import StackKind


def planned_command(plan: LaunchPlan, stack: StackKind) -> Command:
    """The command that a plan stands for. Options without a dash in front are positionals."""
    flags: list[GivenFlag] = []
    positionals: list[str] = []
    position = 0
    for planned in plan.flags:
        values = () if planned.value is None else (planned.value,)
        if planned.name.startswith("-"):
            flags.append(GivenFlag(planned.name, values, position))
        else:
            positionals.extend((planned.name, *values) if planned.name else values)
        position += 1 + len(values)
    return Command(
        environment=tuple(Variable(entry.name, entry.value) for entry in plan.environment),
        program=plan.program,
        flags=tuple(flags),
        positionals=tuple(positionals),
        stack=stack,
    )
