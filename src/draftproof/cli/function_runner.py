"""Link 6 on draftproof's own engine, for `verify --run`. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.cli.native_engine import NativeEngine, build_native_engine
from draftproof.engine.config import EngineConfig
from draftproof.errors import CheckpointError, DraftproofError
from draftproof.evidence import EvidenceItem, Link, LinkReport, Verdict
from draftproof.links.function import Comparison, check_function, compare
from draftproof.links.progress import Progress
from draftproof.links.prompts import GENERAL_PROMPTS, shipped_prompts
from draftproof.links.running_engine import Prompt, Sampling

CONTEXT = 2048
ANSWER_TOKENS = 64
SEED = 7
SAMPLED = 0.8


def engine_config(draft_tokens: int, device: str = "cpu") -> EngineConfig:
    """One sequence with up to `draft_tokens` drafts; UsageError for a number that cannot be."""
    return EngineConfig(draft_tokens=draft_tokens, max_sequences=1, max_length=CONTEXT, device=device)


def sampling_pair(max_tokens: int, temperature: float) -> tuple[Sampling, Sampling]:
    """Greedy, then sampled."""
    return Sampling(0.0, SEED, max_tokens), Sampling(temperature, SEED, max_tokens)


def answer(
    engine: NativeEngine,
    prompts: Sequence[Prompt],
    samplings: Sequence[Sampling],
    progress: Progress,
    prompt_done: Callable[[Sequence[Comparison]], None],
) -> tuple[Comparison, ...]:
    """Compare both arms on every prompt; `prompt_done` gets a prompt's comparisons once it has them all."""
    step = "answering without and with NEXTN"
    total = len(prompts) * len(samplings)
    answered: list[Comparison] = []

    def seen(comparison: Comparison) -> None:
        answered.append(comparison)
        progress.advance(step, len(answered), total)
        if len(answered) % len(samplings) == 0:
            prompt_done(answered[-len(samplings) :])

    progress.advance(step, 0, total)
    return compare(engine, prompts, samplings, seen)


def run_function(checkpoint: Checkpoint, progress: Progress, draft_tokens: int) -> LinkReport:
    """Load the checkpoint, answer prompts in both arms, and judge. An engine that will not start is
    evidence."""
    started = perf_counter()
    config = engine_config(draft_tokens)
    command = f"draftproof verify {checkpoint.location.argument} --run --k {draft_tokens}"
    try:
        engine = build_native_engine(checkpoint, config)
    except DraftproofError as error:
        return LinkReport(Link.FUNCTION, (_does_not_start(error, command),), perf_counter() - started)
    prompts = shipped_prompts(checkpoint) or GENERAL_PROMPTS
    samplings = sampling_pair(ANSWER_TOKENS, SAMPLED)
    comparisons = answer(engine, prompts, samplings, progress, lambda done: None)
    return check_function(engine, comparisons, command, started)


def _does_not_start(error: DraftproofError, command: str) -> EvidenceItem:
    """A broken checkpoint disproves the link; anything else that stops the engine leaves it unknown."""
    broken = isinstance(error, CheckpointError)
    return EvidenceItem(
        check="starts",
        claim="The engine loads the checkpoint.",
        verdict=Verdict.DISPROVED if broken else Verdict.UNKNOWN,
        expected="every tensor taken once or skipped by name",
        observed=error.message,
        command=command,
        reason="" if broken else f"draftproof's engine does not start: {error}",
    )
