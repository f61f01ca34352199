"""Results of `draftproof bench` as Markdown tables.

    python -m benchmarks.gpu_table benchmarks/results/gpu-*.json

One table a file: tokens per second of all sequences together, by batch and K, with the share of the byte
roofline; and what was measured: the GPU, its bandwidth, the commit, and whether acceptance was simulated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def main() -> None:
    for path in sys.argv[1:]:
        content = json.loads(Path(path).read_text())
        if content.get("kind") == "bench":
            print("\n".join(table(content)), end="\n\n")


def table(content: Mapping[str, Any]) -> Iterator[str]:
    """One result file."""
    request, hardware = content["request"], content["hardware"]
    layers = f", {content['layers']} layers" if request["layers"] is not None else ""
    yield f"**{request['shape']}{layers}, {request['precision']}** ({content['layout']})"
    yield (
        f"{hardware['gpu']}, {content['read_bandwidth'] / 1e12:.2f} TB/s reading, "
        f"context {request['context']}, commit {content['commit'][:12]}, {content['time']}"
    )
    yield ""
    cells = content["figures"]
    counts = sorted({each["cell"]["draft_tokens"] for each in cells})
    heads = []
    for count in counts:
        simulated = next(each["cell"]["simulated"] for each in cells if each["cell"]["draft_tokens"] == count)
        note = f", simulated accept length {simulated:.2f}" if simulated else ""
        heads.append(f"NEXTN K={count}{note}" if count else "plain")
    yield f"| batch | {' | '.join(heads)} |"
    yield f"| --- |{' --- |' * len(counts)}"
    for batch in sorted({each["cell"]["batch"] for each in cells}):
        row = []
        for count in counts:
            each = next(
                each
                for each in cells
                if (each["cell"]["batch"], each["cell"]["draft_tokens"]) == (batch, count)
            )
            row.append(f"{each['tokens_per_second']:.0f} ({each['roofline_share']:.0%})")
        yield f"| {batch} | {' | '.join(row)} |"


if __name__ == "__main__":
    main()
