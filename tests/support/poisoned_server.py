"""`draftproof serve tiny` with one token whose embedding is not a number, as a broken kernel would have it.

python -m tests.support.poisoned_server
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from draftproof.cli.native_server import serve_engine
from draftproof.cli.server_options import ServerRequest
from draftproof.engine.config import EngineConfig
from draftproof.serving.checkpoint_factory import CheckpointFactory
from draftproof.serving.factory import ServedEngine

POISON_TOKEN = 3000
"""A prompt with it has logits that are not numbers."""
SEQUENCES = 4


@dataclass(frozen=True)
class PoisonedFactory:
    """Makes the real engine and spoils one row of its embedding."""

    def make(self, report: Callable[[str], None]) -> ServedEngine:
        """See `EngineFactory`."""
        # The process that sends this object over has no torch.
        import torch

        config = EngineConfig(max_sequences=SEQUENCES, prefix_snapshots=8)
        served = CheckpointFactory("tiny", config).make(report)
        engine = cast(Any, served.engine)
        with torch.inference_mode():
            engine.model.embedding[POISON_TOKEN] = math.nan
        return served


def main() -> int:
    """Serve until told to stop."""
    return serve_engine("tiny", PoisonedFactory(), ServerRequest(port=0))


if __name__ == "__main__":
    raise SystemExit(main())
