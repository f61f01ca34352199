"""Golden table: whether the proposed command switches each release's head on, in each version of vLLM.

After a change that is meant to change it::

    python -m tests.stacks.vllm.golden_launch

and read the difference line by line: the file is the review.
"""

from __future__ import annotations

import sys
from pathlib import Path

from draftproof.stacks.defect import Harm
from draftproof.stacks.launch_facts import LaunchJudgement, Ruling
from tests.support.served_checkpoints import release_names
from tests.support.vllm_launch import VERSIONS, planned, situation

FILE = Path(__file__).parents[2] / "data" / "golden" / "vllm-launch.txt"
_LONGEST = 300


def rendered() -> str:
    """The table, and below it the reasons of what does not hold or is open."""
    width = max(len(name) for name in release_names())
    lines = ["The proposed command, by version of vLLM: method and draft class, or what is in the way", ""]
    lines.append(f"{'':<{width}}  " + "  ".join(f"{version:<14}" for version in VERSIONS).rstrip())
    reasons: dict[str, list[str]] = {}
    for name in release_names():
        cells = []
        for version in VERSIONS:
            judgement = planned(version, name, situation())
            cells.append(f"{_cell(judgement):<14}")
            for text in _reasons(judgement):
                reasons.setdefault(text, []).append(f"{name} ({version})")
        lines.append(f"{name:<{width}}  " + "  ".join(cells).rstrip())
    lines.append("")
    for text, where in sorted(reasons.items()):
        lines += [text, f"    {', '.join(where)}"]
    return "\n".join(lines) + "\n"


def _cell(judgement: LaunchJudgement) -> str:
    resolved = judgement.resolved
    if not resolved.algorithm.understood:
        return "?"
    if resolved.algorithm.value is None:
        return "NO"
    broken = any(finding.ruling is Ruling.BREAKS for finding in judgement.findings)
    return f"{'NO' if broken else '+'} {resolved.algorithm.value}, K={resolved.draft_tokens.value}"


def _reasons(judgement: LaunchJudgement) -> list[str]:
    texts = [
        f"{finding.check} {finding.ruling.value}: {finding.observed}"
        for finding in judgement.findings
        if finding.ruling in (Ruling.BREAKS, Ruling.UNKNOWN)
    ]
    texts += [
        f"defect {finding.defect.identifier}: {finding.defect.consequence}"
        for finding in judgement.defects
        if finding.applies and finding.present.value and finding.defect.harm is Harm.BREAKS
    ]
    return [" ".join(text.split())[:_LONGEST] for text in texts]


def main() -> int:
    """Writes the file again."""
    FILE.write_text(rendered())
    sys.stdout.write(f"{FILE}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
