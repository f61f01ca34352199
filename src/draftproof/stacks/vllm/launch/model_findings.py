"""Which model a command serves, with which weights, and how much of its context."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree

CHECK = "model-path"
_LENGTH = "--max-model-len"
_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_MODEL_CONFIG = "vllm/config/model.py"
_LOADING = "--load-format"


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


def weights_findings(bound: BoundCommand) -> Iterator[LaunchFinding]:
    """A format of loading that loads nothing."""
    flag = bound.given(_LOADING)
    if flag is None or flag.flag.value != "dummy":
        return
    yield LaunchFinding(
        "weights-loaded",
        str(flag.flag),
        Ruling.BREAKS,
        "The weights are the checkpoint's.",
        "a format that reads the files",
        "random values take the place of the weights, so that no draft is ever right",
        f"leave {_LOADING} out",
        (flag.option.place,) if flag.option is not None else (),
    )


def length_findings(
    bound: BoundCommand, checkpoint: ServedCheckpoint, tree: SourceTree
) -> Iterator[LaunchFinding]:
    """A context that is longer than the checkpoint was made for, which the stack refuses."""
    flag = bound.given(_LENGTH)
    spec = checkpoint.spec
    value = flag.flag.value if flag is not None else None
    if flag is None or spec is None or value is None or not value.isdigit():
        return
    if int(value) <= spec.max_position or bound.command.variable(_LONGER) == "1":
        return
    yield LaunchFinding(
        "context-fits",
        str(flag.flag),
        Ruling.BREAKS,
        "The context is one that the checkpoint was made for.",
        f"at most {spec.max_position:,} positions",
        f"{int(value):,} positions; the stack refuses more than the config says, unless {_LONGER}=1",
        f"give {_LENGTH} {spec.max_position}",
        (*((flag.option.place,) if flag.option is not None else ()), *_mention(tree)),
    )


def _mention(tree: SourceTree) -> tuple[Place, ...]:
    if not tree.has(_MODEL_CONFIG):
        return ()
    for number, line in enumerate(tree.text(_MODEL_CONFIG).splitlines(), 1):
        if _LONGER in line:
            return (Place(_MODEL_CONFIG, number),)
    return ()
