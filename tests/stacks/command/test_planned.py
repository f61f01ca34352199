"""A plan becomes the command that a user would type."""

from __future__ import annotations

from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.command.planned import planned_command
from draftproof.stacks.launch_facts import EnvironmentVariable, LaunchPlan, PlannedFlag
from draftproof.stacks.stack import StackKind


def test_a_planned_command_equals_the_typed_one() -> None:
    plan = LaunchPlan(
        ("vllm", "serve"),
        (
            PlannedFlag("/m", None, "why"),
            PlannedFlag("-sc", '{"a": 1}', "why"),
            PlannedFlag("--fast", None, ""),
        ),
        (EnvironmentVariable("A", "1", "why"),),
    )
    command = planned_command(plan, StackKind.VLLM)
    assert str(command) == "A=1 vllm serve /m -sc '{\"a\": 1}' --fast"
    assert parse_command(str(command)) == command
