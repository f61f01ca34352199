"""Golden tables of link 4: the proposed command for each public release, judged in each real version.

One text file a version, tests/data/golden/launch-STACK-VERSION.txt, for one RTX PRO 6000: the GPU with most
ways to go wrong. After a change that is meant to change them::

    python -m tests.stacks.golden_launch                    all files
    python -m tests.stacks.golden_launch sglang-0.5.23      one of them
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from draftproof.evidence import LinkReport
from draftproof.hardware.gpu_table import GPUS
from draftproof.links.launch import check_launch
from draftproof.stacks.known import rules_for
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from tests.stacks.golden import FOLDER, GoldenLink, rendered
from tests.support.real_stacks import REAL_STACKS, real_stack

SITUATION = Situation(next(gpu for gpu in GPUS if gpu.key == "rtx-pro-6000"), 1)


def launch_report(stack: Stack, checkpoint: ServedCheckpoint) -> LinkReport:
    """Link 4 of the proposed command."""
    return check_launch(checkpoint, stack, rules_for(stack.kind), SITUATION)


def launch_table(name: str, version: str) -> str:
    """The golden file of one version."""
    return rendered(real_stack(name, version), (GoldenLink("launch", launch_report),))


def launch_file(name: str, version: str) -> Path:
    """Where it lies."""
    return FOLDER / f"launch-{name}-{version}.txt"


def main(wanted: Sequence[str]) -> int:
    """Writes the files again."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, version in REAL_STACKS:
        if not wanted or f"{name}-{version}" in wanted:
            launch_file(name, version).write_text(launch_table(name, version))
            sys.stdout.write(f"{launch_file(name, version)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
