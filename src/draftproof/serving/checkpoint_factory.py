"""Makes the engine of a checkpoint inside the engine process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.choice_line import choice_line
from draftproof.engine.config import EngineConfig
from draftproof.engine.status import EngineStatus
from draftproof.serving.factory import ServedEngine
from draftproof.serving.messages import EngineReady


@dataclass(frozen=True)
class CheckpointFactory:
    """A checkpoint and how to run it.

    Attributes:
        checkpoint: a folder, a repository in the local cache, or "tiny".
        config: of the engine.
    """

    checkpoint: str
    config: EngineConfig

    def make(self, report: Callable[[str], None]) -> ServedEngine:
        """Load and wire, see `EngineFactory`."""
        report("starting torch")
        # Here and not above: the process that sends this object over has no torch.
        from draftproof.engine.build import build_engine
        from draftproof.text.grammar import GrammarCompiler
        from draftproof.text.tokenizer import Tokenizer

        report(f"loading {self.checkpoint}")
        opened = open_checkpoint(self.checkpoint)
        built = build_engine(opened, self.config)
        chosen = choice_line(built.engine.choice.arms())
        if chosen:
            report(chosen)
        assert opened.folder is not None
        tokenizer = Tokenizer.load(opened.folder)
        spec = built.spec
        ready = EngineReady(
            max_length=built.max_length,
            max_sequences=self.config.max_sequences,
            vocabulary_size=spec.vocab_size,
            end_token_ids=tuple(spec.end_token_ids),
            drafter_name=built.engine.drafter_name,
            draft_tokens=self.config.window_rows - 1,
            device=self.config.device,
            simulated_accept_length=self.config.simulated_accept_length,
            load_lines=(
                f"{built.report.taken} tensors loaded",
                *(f"{count} tensors left out: {reason}" for reason, count in built.report.skipped),
            ),
            memory=f"{_memory_in_use(self.config)}; {_room(built.engine.status(), self.config)}",
            draft_policy=self.config.draft_policy.value,
        )
        constraints = GrammarCompiler(tokenizer, spec.end_token_ids, spec.vocab_size)
        if spec.end_token_ids:
            # Now: the first request with a grammar would otherwise hold up all others.
            constraints.prepare()
        return ServedEngine(built.engine, tokenizer, constraints, ready)


def _memory_in_use(config: EngineConfig) -> str:
    """Measured, after everything was allocated."""
    if config.uses_device_steps:
        import torch

        return f"{torch.cuda.memory_allocated(config.device) / 1e9:.2f} GB of the GPU"
    return f"{_peak_resident_bytes() / 1e9:.2f} GB"


def _peak_resident_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _room(status: EngineStatus, config: EngineConfig) -> str:
    return (
        f"room for {status.pages_total * config.page_size:,} tokens, {status.slots_total} running sequences "
        f"and {status.snapshots_total} kept prompts"
    )
