"""`draftproof serve` over a scripted engine: the whole server, with failures where a test wants them.

python -m tests.support.scripted_server --hangs-at 3 --stall-seconds 0.5
"""

from __future__ import annotations

import argparse

from draftproof.cli.native_server import serve_engine
from draftproof.cli.server_options import ServerRequest
from tests.support.scripted_engine import Deed, Fails, ScriptedFactory, hangs


def main() -> int:
    """Serve until told to stop."""
    options = _options()
    deeds: dict[int, Deed] = {step: Fails(RuntimeError("broken")) for step in options.fails_at}
    deeds |= dict.fromkeys(options.hangs_at, hangs)
    return serve_engine(
        "tiny",
        ScriptedFactory(deeds, options.slots, options.step_seconds),
        ServerRequest(
            port=0,
            max_queue=options.max_queue,
            stall_seconds=options.stall_seconds,
            drain_seconds=options.drain_seconds,
        ),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fails-at", type=int, nargs="*", default=[], help="steps that raise")
    parser.add_argument("--hangs-at", type=int, nargs="*", default=[], help="steps that never end")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--step-seconds", type=float, default=0.005)
    parser.add_argument("--max-queue", type=int, default=4)
    parser.add_argument("--stall-seconds", type=float, default=30.0)
    parser.add_argument("--drain-seconds", type=float, default=20.0)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
