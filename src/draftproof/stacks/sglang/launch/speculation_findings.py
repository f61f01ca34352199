"""What the version makes of a command's speculation: whether it starts, on or off, how many drafts."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.foreign_options import speculation
from draftproof.stacks.sglang.launch.launch_context import LaunchContext

HEAD_ALGORITHMS = frozenset(("EAGLE", "NEXTN"))
"""Algorithms in force that draft with a checkpoint's own head."""
TRIPLE = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
_STARTS = "The version's own resolution takes the command to its end."
_TOGETHER = "Steps, branches and draft tokens are given together, or none of them."
_AGREE = "The numbers of steps and of draft tokens agree: draft tokens are steps + 1."


def start_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Whether the resolution comes to its end."""
    resolution = context.resolution
    expected = "a resolution that ends without an error"
    if resolution.raised is not None:
        raised = resolution.raised
        text = str(raised) if raised.message else f"{raised} without a word"
        yield LaunchFinding(
            "starts", "", Ruling.BREAKS, _STARTS, expected, f"it stops with {text}",
            _remedy(context), (raised.place,),
        )  # fmt: skip
    elif resolution.lost:
        places = () if resolution.place is None else (resolution.place,)
        yield LaunchFinding(
            "starts", "", Ruling.UNKNOWN, _STARTS, expected,
            f"the resolution could not be followed: {resolution.lost}", "", places,
        )  # fmt: skip
    else:
        yield LaunchFinding("starts", "", Ruling.HOLDS, _STARTS, expected, "it ends without an error")


def _remedy(context: LaunchContext) -> str:
    """What to type, for errors whose own words do not say it."""
    given = [field for field in TRIPLE if context.values.given(field)]
    raised = context.resolution.raised
    speaks = raised is not None and raised.message and raised.type_name != "TypeError"
    if given and len(given) < len(TRIPLE) and not speaks:
        steps = context.values.number(TRIPLE[0]) or context.situation.draft_tokens
        return speculation(steps)
    return ""


def triple_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Steps, branches and draft tokens belong together."""
    given = [field for field in TRIPLE if context.values.given(field)]
    missing = [field for field in TRIPLE if field not in given]
    if not given:
        return
    subject = ", ".join(_option(context, field) for field in given)
    places = _declared(context, *TRIPLE)
    expected = "all three or none"
    if missing:
        names = ", ".join(_option(context, field) for field in missing)
        steps = context.values.number(TRIPLE[0]) or context.situation.draft_tokens
        yield LaunchFinding(
            "options-together", subject, Ruling.BREAKS, _TOGETHER, expected,
            f"given without {names}", speculation(steps), places,
        )  # fmt: skip
        return
    yield LaunchFinding(
        "options-together", subject, Ruling.HOLDS, _TOGETHER, expected, "all three are given", "", places
    )
    yield from _agreement(context, places)


def _agreement(context: LaunchContext, places: tuple[Place, ...]) -> Iterator[LaunchFinding]:
    steps, branches, tokens = (context.values.number(field) for field in TRIPLE)
    if steps is None or tokens is None:
        return
    subject = f"steps {steps}, draft tokens {tokens}"
    if steps < 1:
        yield LaunchFinding(
            "draft-tokens-agree", subject, Ruling.BREAKS, _AGREE, "at least one step",
            f"{steps} steps draft nothing", speculation(context.situation.draft_tokens), places,
        )  # fmt: skip
    elif branches == 1 and tokens != steps + 1:
        changed = context.resolution.places("speculative_num_draft_tokens")
        in_force = context.resolution.value("speculative_num_draft_tokens")
        what = f", and {in_force} is put in force" if isinstance(in_force, int) and in_force != tokens else ""
        yield LaunchFinding(
            "draft-tokens-agree", subject, Ruling.BREAKS, _AGREE, f"draft tokens {steps + 1}",
            f"{tokens} draft tokens do not fit {steps} steps{what} (vLLM's K is steps K, draft tokens K + 1)",
            f"--speculative-num-draft-tokens {steps + 1}", changed or places,
        )  # fmt: skip
    elif branches is not None and branches > 1:
        yield LaunchFinding(
            "draft-tokens-agree", subject, Ruling.WARNS, _AGREE, "one branch",
            f"{branches} branches make a tree of drafts, for which fewer kernels exist than for a chain",
            "--speculative-eagle-topk 1", places,
        )  # fmt: skip
    else:
        yield LaunchFinding(
            "draft-tokens-agree",
            subject,
            Ruling.HOLDS,
            _AGREE,
            f"draft tokens {steps + 1}",
            "they agree",
            "",
            places,
        )


def algorithm_findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    """Whether the algorithm's name is one that drafts with the checkpoint's own head."""
    name = context.values.text("speculative_algorithm")
    claim = "The algorithm of the command is one that this version accepts and that drafts with the head."
    expected = "NEXTN, or EAGLE for which it stands"
    refused = any(bad.declared.field == "speculative_algorithm" for bad in context.values.bad)
    places = (
        *context.resolution.places("speculative_algorithm"),
        *_declared(context, "speculative_algorithm"),
    )
    remedy = f"--speculative-algorithm NEXTN ({speculation(context.situation.draft_tokens)})"
    if refused:
        return
    if name is None:
        yield LaunchFinding(
            "algorithm-accepted", "", Ruling.BREAKS, claim, expected,
            "the command asks for no algorithm, and nothing else switches speculation on", remedy, places,
        )  # fmt: skip
        return
    in_force = context.resolution.value("speculative_algorithm")
    raised = context.resolution.raised
    if (
        raised is not None
        and "algorithm" in raised.message.lower()
        and name.upper() in raised.message.upper()
    ):
        yield LaunchFinding(
            "algorithm-accepted", name, Ruling.BREAKS, claim, expected, f"refused: {raised.message}", remedy,
            (raised.place, *places),
        )  # fmt: skip
    elif name.upper() in HEAD_ALGORITHMS:
        yield LaunchFinding(
            "algorithm-accepted", name, Ruling.HOLDS, claim, expected,
            f"becomes {in_force}" if in_force and in_force != name else "is accepted", "", places,
        )  # fmt: skip
    elif isinstance(in_force, str) and in_force not in HEAD_ALGORITHMS:
        yield LaunchFinding(
            "algorithm-accepted", name, Ruling.BREAKS, claim, expected,
            f"{in_force} does not draft with the checkpoint's own head", remedy, places,
        )  # fmt: skip


def _option(context: LaunchContext, field: str) -> str:
    declared = context.arguments.of_field(field)
    return declared.option.name if declared is not None else f"--{field.replace('_', '-')}"


def _declared(context: LaunchContext, *fields: str) -> tuple[Place, ...]:
    found = (context.arguments.of_field(field) for field in fields)
    return tuple(declared.option.place for declared in found if declared is not None)
