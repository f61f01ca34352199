"""What a benchmark is asked for, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape
from draftproof.device.shapes import BUCKETS, MAX_DEVICE_DRAFTS, StepShape, bucket_of
from draftproof.errors import UsageError
from draftproof.kernels.backend_rules import PACKAGES, Backend
from draftproof.speculation.draft_vocabulary import is_number, read_draft_vocabulary

LARGEST_SEED = 2**63 - 1
"""That torch's generators take."""

AS_MANY_AS_FIT = 0
"""In place of a number of layers: a slice that the GPU's memory holds."""


@dataclass(frozen=True)
class BenchRequest:
    """One run.

    Attributes:
        shape: a name of `shapes.SHAPES`.
        precision: a name of `precisions.LAYOUTS`.
        layers: the first so many layers alone; `AS_MANY_AS_FIT`; None for all.
        batches: sequences at once, one measurement each.
        draft_tokens: K, one measurement each; 0 is plain decoding.
        context: tokens before the measured steps, of each sequence.
        steps: steps of one sample.
        repeats: samples of each measurement, taken in turns.
        accept_length: simulated tokens per verify pass at the largest K; None lets the weights decide.
        draft_rows: drafts are chosen among the first so many tokens; None for all of them, or for those of a
            file.
        draft_file: names the tokens that drafts are chosen among; None for no file.
        draft_8bit: the MTP head and what it chooses among are kept in 8 bits; it only proposes, so no text
            depends on it.
        kernels: a table of the time of each kernel of a step.
        microbenchmarks: each kernel alone, with its bytes.
        eager: without graphs.
        backends: (op, backend) pairs that replace the tuning table's choice.
        seed: of the weights.
    """

    shape: str
    precision: str = "nvfp4"
    layers: int | None = None
    batches: tuple[int, ...] = (1,)
    draft_tokens: tuple[int, ...] = (0, 3)
    context: int = 1024
    steps: int = 64
    repeats: int = 3
    accept_length: float | None = None
    draft_rows: int | None = None
    draft_file: Path | None = None
    draft_8bit: bool = False
    kernels: bool = False
    microbenchmarks: bool = False
    eager: bool = False
    backends: tuple[tuple[str, Backend], ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        spec = load_shape(self.shape)
        layout_named(self.precision)
        _require(self.batches, 1, BUCKETS[-1], "--batch")
        _require_distinct(self.batches, "--batch")
        _require(self.draft_tokens, 0, MAX_DEVICE_DRAFTS, "--draft-tokens")
        _require_distinct(self.draft_tokens, "--draft-tokens")
        _require((self.steps,), 1, 4096, "--steps")
        _require((self.repeats,), 1, 100, "--repeats")
        _require((self.context,), 1, spec.max_position - 1, "--context")
        if self.layers is not None and self.layers != AS_MANY_AS_FIT:
            _require((self.layers,), 1, len(spec.layers), "--layers")
        _require((self.seed,), 0, LARGEST_SEED, "--seed")
        _require_distinct([op for op, _ in self.backends], "--backend")
        if self.draft_rows is not None:
            _require((self.draft_rows,), 1, spec.vocab_size, "--draft-vocabulary")
        if self.draft_file is not None:
            read_draft_vocabulary(self.draft_file, spec.vocab_size)
        if self.accept_length is None:
            return
        largest = self.most_drafts
        if not 1.0 <= self.accept_length <= largest + 1:
            raise UsageError(
                f"--simulate-accept-length {self.accept_length:g}: with K = {largest} a verify pass gives "
                f"from 1 to {largest + 1} tokens"
            )

    @property
    def most_drafts(self) -> int:
        """The largest K."""
        return max(self.draft_tokens)

    @property
    def shapes(self) -> tuple[StepShape, ...]:
        """Of all steps that are measured."""
        return tuple(
            StepShape(bucket_of(batch), drafts) for batch in self.batches for drafts in self.draft_tokens
        )

    def simulated(self, draft_tokens: int) -> float | None:
        """The accept length that is simulated for a K; None for plain decoding and without simulation."""
        if self.accept_length is None or not draft_tokens:
            return None
        return accept_length_of(chance_of(self.accept_length, self.most_drafts), draft_tokens)


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """ "1,4,16" as numbers.

    Raises:
        UsageError: it is no list of numbers.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} {text[:40]!r} is no list of numbers", "Write it like 1,4,16.") from error


def parse_backend(text: str) -> tuple[str, Backend]:
    """ "experts_step=triton" as an op and its backend.

    Raises:
        UsageError: there is no such op or backend.
    """
    op, _, name = text.partition("=")
    backend = next((each for each in Backend if each.value == name), None)
    if op not in PACKAGES or backend is None:
        raise UsageError(
            f"--backend {text[:60]!r} names no op and backend",
            f"Ops are {', '.join(PACKAGES)}; backends are {', '.join(each.value for each in Backend)}.",
        )
    return op, backend


def parse_draft_vocabulary(text: str) -> tuple[int | None, Path | None]:
    """ "32768" as a number of tokens, anything else as a file that names them."""
    return (int(text), None) if is_number(text) else (None, Path(text))


def parse_layers(text: str) -> int:
    """ "12", or "fit" for as many as the memory holds.

    Raises:
        UsageError: it is neither, or less than 1.
    """
    if text == "fit":
        return AS_MANY_AS_FIT
    try:
        count = int(text)
    except ValueError as error:
        raise UsageError(f"--layers {text[:40]!r} is no number", "Write a number, or fit.") from error
    if count < 1:
        raise UsageError(f"--layers {count} leaves no layer", "Write a number from 1, or fit.")
    return count


def chance_of(accept_length: float, draft_tokens: int) -> float:
    """The chance p that a draft is accepted after accepted ones: 1 + p + ... + p^K is the accept length."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if accept_length_of(middle, draft_tokens) < accept_length:
            low = middle
        else:
            high = middle
    return high


def accept_length_of(chance: float, draft_tokens: int) -> float:
    """Tokens per verify pass when each draft is accepted with this chance."""
    return sum(chance**accepted for accepted in range(draft_tokens + 1))


def _require(values: tuple[int, ...], lowest: int, highest: int, option: str) -> None:
    if not values:
        raise UsageError(f"{option} needs a number")
    for value in values:
        if not lowest <= value <= highest:
            raise UsageError(f"{option} {value} is not from {lowest} to {highest}")


def _require_distinct(values: Sequence[int | str], option: str) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise UsageError(f"{option} names {value} twice", "Name each once.")
