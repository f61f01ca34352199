"""Which model a command serves."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.served_checkpoint import ServedCheckpoint

CHECK = "model-path"


def model_findings(bound: BoundCommand, checkpoint: ServedCheckpoint) -> Iterator[LaunchFinding]:
    """Whether the command serves the checkpoint that is judged."""
    if not bound.command.program:
        return
    flag = bound.given("--model")
    given = bound.positionals[0] if bound.positionals else bound.value("--model")
    claim = "The command serves the checkpoint that is looked at."
    expected = f"{checkpoint.name} after the program"
    places = (flag.option.place,) if flag is not None and flag.option is not None else ()
    if given is None:
        if bound.given("--config") is None:
            observed = "no model is named, so that the stack serves its default one"
            remedy = f"put {checkpoint.name} after the program"
            yield LaunchFinding(CHECK, "", Ruling.BREAKS, claim, expected, observed, remedy)
        return
    if len(bound.positionals) > 1:
        extra = " ".join(bound.positionals[1:])
        yield LaunchFinding(
            CHECK, extra, Ruling.BREAKS, claim, expected, "words that belong to no option", f"remove {extra}"
        )
    same = _last(given) == _last(checkpoint.name)
    observed = "it does" if same else f"it serves {given}; what follows is about {checkpoint.name}"
    yield LaunchFinding(
        CHECK, given, Ruling.HOLDS if same else Ruling.WARNS, claim, expected, observed, "", places
    )


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
