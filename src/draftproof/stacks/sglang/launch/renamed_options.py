"""Options that changed their names between versions, as data; each version's own table decides what holds."""

from __future__ import annotations

from draftproof.stacks.launch_facts import Option, OptionTable

RENAMED = (
    ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
    ("--nsa-prefill-backend", "--dsa-prefill-backend"),
    ("--nsa-decode-backend", "--dsa-decode-backend"),
    ("--enable-nsa-prefill-context-parallel", "--enable-prefill-cp"),
    ("--enable-prefill-context-parallel", "--enable-prefill-cp"),
    ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
    ("--cuda-graph-bs", "--cuda-graph-bs-decode"),
    ("--disable-piecewise-cuda-graph", "--disable-prefill-cuda-graph"),
    ("--speculative-dflash-draft-window-size", "--speculative-draft-window-size"),
    ("--enable-deepep-waterfill", "--enable-waterfill"),
    ("--stream-output", "--incremental-streaming-output"),
    ("--elastic-ep-rejoin", "--elastic-ep-join-mode"),
)
"""(earlier name, later name)."""


def other_name(name: str, table: OptionTable) -> Option | None:
    """The option that a name of another version means here.

    None when this version has the name itself, or neither of the two names.
    """
    if table.get(name) is not None:
        return None
    for pair in RENAMED:
        if name in pair:
            option = table.get(pair[1] if name == pair[0] else pair[0])
            if option is not None:
                return option
    return None
