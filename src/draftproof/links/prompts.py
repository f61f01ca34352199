"""Prompts for links that run an engine: those that a checkpoint ships, or the user's own."""

from __future__ import annotations

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.errors import CheckpointError
from draftproof.links.running_engine import Prompt

PROMPTS_FILE = "prompts.json"
MAX_PROMPTS_BYTES = 1 << 20

GENERAL_PROMPTS = (
    Prompt("function", "code", 'def is_prime(number: int) -> bool:\n    """Whether a number is prime."""\n'),
    Prompt(
        "class",
        "code",
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    ),
    Prompt("story", "prose", "The old lighthouse keeper looked out over the sea and"),
    Prompt("list", "prose", "The seven days of the week are Monday, Tuesday,"),
)
"""For checkpoints that ship no prompts of their own."""


def shipped_prompts(checkpoint: Checkpoint) -> tuple[Prompt, ...]:
    """Prompts of the checkpoint's `prompts.json`; empty when it ships none.

    The file holds {"prompts": [{"id", "kind", "text", "source"}, ...]}: texts that the model has not seen in
    training.

    Raises:
        CheckpointError: the file is there, but is not of that form.
    """
    if PROMPTS_FILE not in checkpoint.source.list_files():
        return ()
    data = checkpoint.source.read(PROMPTS_FILE, MAX_PROMPTS_BYTES)
    try:
        rows = parse_object(data, JsonLimits(values=100_000, depth=8))["prompts"]
        return tuple(Prompt(row["id"], row["kind"], row["text"], row.get("source", "")) for row in rows)
    except (JsonProblem, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{PROMPTS_FILE} is not a list of prompts: {error}") from error
