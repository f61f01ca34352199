"""Link 3: the serving stack has a class for this head, and a parameter for every tensor of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.evidence import EvidenceItem, Link, LinkReport
from draftproof.links.defect_claims import defect_items
from draftproof.links.landing_claims import landing_item, promised, written_item
from draftproof.links.progress import NoProgress, Progress
from draftproof.links.served import served_checkpoint
from draftproof.links.stack_places import reading_item
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.defect import DefectLink
from draftproof.stacks.rules import StackRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack


def check_code(
    checkpoint: Checkpoint | ServedCheckpoint,
    stack: Stack,
    rules: StackRules,
    situation: Situation | None = None,
    progress: Progress | None = None,
) -> LinkReport:
    """Runs link 3. Source that no rule understands is an open claim, not an error.

    Args:
        checkpoint: the files, or what a stack gets to see of them.
        stack: the stack to look at.
        rules: that stack's rules.
        situation: where it is to be served; None for nowhere in particular.
        progress: is told how far the link is.

    Raises:
        StackError: the stack's files cannot be read at all.
    """
    start = time.perf_counter()
    progress = progress or NoProgress()
    step = f"code of {stack.label}"
    progress.advance(step, 0, 1)
    served = checkpoint if isinstance(checkpoint, ServedCheckpoint) else served_checkpoint(checkpoint)
    support = rules.head_support(stack, served, situation or Situation())
    items = tuple(code_items(stack.tree.root, served, support))
    progress.advance(step, 1, 1)
    return LinkReport(Link.CODE, items, time.perf_counter() - start, _limits(served))


def code_items(root: Path, checkpoint: ServedCheckpoint, support: HeadSupport) -> Iterator[EvidenceItem]:
    """The claims of link 3, in the order in which a stack meets them.

    Args:
        root: folder of the stack's source, for the commands.
        checkpoint: what the claims are about.
        support: what the stack's rules found.
    """
    name = checkpoint.architecture or "the checkpoint's architecture"
    yield reading_item(
        root,
        "target-known",
        "The stack has a class for the checkpoint's architecture.",
        f"a registered class for {name}",
        support.target,
    )
    yield reading_item(
        root,
        "draft-mapped",
        "The stack turns the checkpoint's architecture into that of its MTP head.",
        f"a rule that makes a draft architecture out of {name}",
        support.draft_architecture,
    )
    draft = support.draft_architecture.value or "the draft architecture"
    yield reading_item(
        root, "draft-class", "There is a class for the head.", f"a class {draft}", support.draft_class
    )
    yield reading_item(
        root,
        "draft-class-registered",
        "The head's class is registered.",
        f"{draft} among the classes that the stack can load",
        support.registration,
    )
    yield reading_item(
        root,
        "draft-implemented",
        "The head's class is no stub.",
        "bodies of forward and of weight loading that do something, and use of the target's hidden states",
        support.implementation,
    )
    for item in (landing_item(root, support), written_item(root, support)):
        yield item if checkpoint.from_files else promised(item)
    yield from defect_items(root, DefectLink.CODE, support.defects)


def _limits(checkpoint: ServedCheckpoint) -> tuple[str, ...]:
    one_rank = "that the head loads in the same way when its layers are split over GPUs (followed for one)"
    if checkpoint.from_files:
        return (one_rank,)
    return (one_rank, "what becomes of the files' tensors (there are none; the architecture's were followed)")
