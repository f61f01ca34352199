"""Cuts the demo's prompts out of the held-out text.

Each prompt is a few lines of a file that the model did not see in training. They were chosen for being short
and self-contained before any acceptance was measured on them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tools.tiny.conversations import NO_THINKING

PYTHON = "PSF-2.0, Copyright Python Software Foundation"


@dataclass(frozen=True)
class Excerpt:
    """Where a prompt is cut.

    Attributes:
        name: the prompt's id.
        kind: "code" or "prose".
        path: end of the path of the held-out file.
        first: text of the first line.
        lines: how many lines.
        licence: of the excerpt, with its owner.
    """

    name: str
    kind: str
    path: str
    first: str
    lines: int
    licence: str


EXCERPTS = (
    Excerpt("heap", "code", "heapq.py", "def heappushpop(heap, item):", 9, PYTHON),
    Excerpt("scheduler", "code", "sched.py", "    def enterabs(", 10, PYTHON),
    Excerpt("dedent", "code", "textwrap.py", "def dedent(text):", 17, PYTHON),
    Excerpt(
        "ordered-set", "code", "marshmallow/orderedset.py", "class OrderedSet(MutableSet):", 12,
        "MIT, Copyright Steven Loria and contributors",
    ),
    Excerpt(
        "file-system", "code", "luigi/local_target.py", "class LocalFileSystem(FileSystem):", 10,
        "Apache-2.0, Copyright Spotify AB",
    ),
    Excerpt("queue", "prose", "library/queue.rst.txt", "The :mod:`queue` module implements", 6, PYTHON),
    Excerpt("names", "prose", "tutorial/classes.rst.txt", "A Word About Names and Objects", 6, PYTHON),
)  # fmt: skip
QUESTION = (
    "Write a Python function `as_integer_ratio`. Return the integer ratio as a tuple.",
    "fractions.py",
    PYTHON,
)
"""A chat prompt: what is asked, the held-out file that the question was made from, its licence."""


def cut(documents: list[dict[str, str]]) -> list[dict[str, str]]:
    """The prompts as `prompts.json` lists them.

    Raises:
        LookupError: an excerpt's file or first line is not among the held-out documents.
    """
    prompts = []
    for excerpt in EXCERPTS:
        document = _find(documents, excerpt.path)
        lines = document["text"].split("\n")
        first = next((number for number, line in enumerate(lines) if line.startswith(excerpt.first)), None)
        if first is None:
            raise LookupError(f"{excerpt.path} has no line {excerpt.first!r}")
        text = "\n".join(lines[first : first + excerpt.lines]) + "\n"
        prompts.append(_prompt(excerpt.name, excerpt.kind, text, document, excerpt.licence))
    question, path, licence = QUESTION
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{NO_THINKING}"
    return [*prompts, _prompt("chat", "chat", text, _find(documents, path), licence)]


def write(held_out: Path, target: Path) -> None:
    """Reads heldout.jsonl and writes prompts.json."""
    with held_out.open(encoding="utf-8") as stream:
        documents = [json.loads(line) for line in stream]
    target.write_text(json.dumps({"prompts": cut(documents)}, indent=1) + "\n", encoding="utf-8")


def _find(documents: list[dict[str, str]], path: str) -> dict[str, str]:
    for document in documents:
        if document["kind"] != "chat" and f"/{document['path']}".endswith(f"/{path}"):
            return document
    raise LookupError(f"{path} is not held out")


def _prompt(name: str, kind: str, text: str, document: dict[str, str], licence: str) -> dict[str, str]:
    source = f"{document['source']}, {document['path']}"
    return {"id": name, "kind": kind, "text": text, "source": source, "licence": licence}
