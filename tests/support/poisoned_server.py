"""`draftproof serve tiny` with weights that are not what they should be, as a broken kernel would have them.

python -m tests.support.poisoned_server token|head
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from draftproof.cli.native_server import serve_engine
from draftproof.cli.server_options import ServerRequest
from draftproof.engine.config import EngineConfig
from draftproof.serving.checkpoint_factory import CheckpointFactory
from draftproof.serving.factory import ServedEngine

POISON_TOKEN = 3000
SEQUENCES = 4


class Poison(Enum):
    """What is spoiled."""

    TOKEN = "token"
    """The embedding of POISON_TOKEN is not a number: no logits of a prompt with it are."""
    HEAD = "head"
    """The head's output is upside down: it drafts what is least likely."""


@dataclass(frozen=True)
class PoisonedFactory:
    """Makes the real engine and spoils it; what is drafted is fixed, so that drafts go on being made.

    Attributes:
        poison: what to spoil.
    """

    poison: Poison

    def make(self, report: Callable[[str], None]) -> ServedEngine:
        """See `EngineFactory`."""
        # The process that sends this object over has no torch.
        import torch

        config = EngineConfig(max_sequences=SEQUENCES, prefix_snapshots=8)
        served = CheckpointFactory("tiny", config).make(report)
        engine = cast(Any, served.engine)
        with torch.inference_mode():
            if self.poison is Poison.TOKEN:
                engine.model.embedding[POISON_TOKEN] = math.nan
            else:
                engine.drafter._head.norm.scale.neg_()
        return served


def main() -> int:
    """Serve until told to stop."""
    return serve_engine("tiny", PoisonedFactory(Poison(sys.argv[1])), ServerRequest(port=0))


if __name__ == "__main__":
    raise SystemExit(main())
