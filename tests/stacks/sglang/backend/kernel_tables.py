"""Reviewed tables: the kernels that each real version of SGLang chooses, by checkpoint and GPU.

One text file a version, tests/data/golden/kernels-sglang-VERSION.txt. Each line is a group of modules or a
phase, and what it gets on each compute capability: `+` its conditions admit the GPU, `NO` they do not, `?` it
is open; `~` it converts the weights first. Below stands how to ask for the right one. After a change that is
meant to change them::

    python -m tests.stacks.sglang.backend.kernel_tables

and read the difference line by line: the file is the review.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from draftproof.stacks.backend_facts import KernelChoice, Phase
from tests.stacks.golden import FOLDER
from tests.support.sglang_kernels import (
    COMPRESSED,
    DEEPSEEK,
    DENSE_FP8,
    EXPLICIT,
    EXTRA_BUFFER,
    FP8,
    GLM,
    HEADLINE,
    TEXT_ONLY,
    VERSIONS,
    Asked,
    asked,
    checkpoint_named,
)

NAMES = (HEADLINE, TEXT_ONLY, COMPRESSED, FP8, DENSE_FP8, GLM, DEEPSEEK)
CAPABILITIES = (80, 89, 90, 100, 120)
"""SM103 is as SM100, and SM121 as SM120: tests/stacks/sglang/backend/test_backends.py."""


def rendered(version: str) -> str:
    """The table of one version."""
    lines = [f"SGLang {version}: NEXTN, 3 steps, 1 branch, 4 draft tokens, 8 GPUs", ""]
    for name in NAMES:
        seen = {capability: _asked(version, name, capability) for capability in CAPABILITIES}
        lines += [*_table(name, seen), ""]
    return "\n".join(lines)


def golden_path(version: str) -> Path:
    """Where the table of one version lies."""
    return FOLDER / f"kernels-sglang-{version}.txt"


def _asked(version: str, name: str, capability: int) -> Asked:
    is_hybrid = name not in (GLM, DEEPSEEK)
    extra = EXTRA_BUFFER if version == "0.5.12" and is_hybrid else {}
    return asked(version, name, capability, **EXPLICIT, **extra)


def _table(name: str, by_capability: dict[int, Asked]) -> Iterator[str]:
    first = next(iter(by_capability.values()))
    yield f"== {name} ({checkpoint_named(name).architecture}) =="
    layout = first.layout.value
    if layout is not None:
        yield (
            f"states of a request: {layout.committed_copies} + {layout.draft_copies} for drafts, "
            f"{layout.state_bytes} bytes an element"
        )
    remedies: dict[str, list[str]] = {}
    width = max(len(_label(choice)) for choice in first.choices)
    for index, choice in enumerate(first.choices):
        cells: dict[str, list[str]] = {}
        for capability, seen in by_capability.items():
            other = seen.choices[index]
            cells.setdefault(_cell(other), []).append(str(capability))
            if other.explicit:
                remedies.setdefault(f"{_label(other)}: {other.explicit}", []).append(str(capability))
        text = "   ".join(f"{cell} {','.join(capabilities)}" for cell, capabilities in cells.items())
        yield f"{_label(choice):<{width}}  {text}"
    for remedy, capabilities in remedies.items():
        yield f"  ask on {','.join(capabilities)} for {remedy}"


def _label(choice: KernelChoice) -> str:
    phase = "" if choice.phase is Phase.ANY else f", {choice.phase.value}"
    stored = f" in {choice.precision}" if choice.precision else ""
    return f"{choice.group}{stored}{phase}"


def _cell(choice: KernelChoice) -> str:
    mark = {True: "+", False: "NO", None: "?"}[choice.valid.value]
    return f"{choice.backend.value or '-'}{'~' if choice.native is False else ''}{mark}"


def main(wanted: Sequence[str]) -> int:
    """Writes the files again."""
    for version in wanted or VERSIONS:
        golden_path(version).write_text(rendered(version), encoding="utf-8")
        sys.stdout.write(f"{golden_path(version)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
