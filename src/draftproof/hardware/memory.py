"""Whether weights, keys, values and states fit, and how far: context, concurrency, shortfall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftproof.hardware.gpu import Gpu
from draftproof.hardware.sequence_cost import SequenceCost
from draftproof.hardware.shape import Shape
from draftproof.hardware.weights import WeightTable

_GIB = 2**30
_MEASURED_WIDTH = 2048
CONTEXTS = (4_096, 32_768, 131_072, 262_144)
CONCURRENCIES = (1, 4, 16, 48, 128)
MOST_SEQUENCES = 100_000


@dataclass(frozen=True)
class Allowance:
    """Memory that is set aside for something that cannot be derived from the checkpoint.

    Attributes:
        purpose: what for.
        nbytes: how much, on one GPU.
        source: where the figure comes from.
    """

    purpose: str
    nbytes: int
    source: str


def default_allowances(shape: Shape, ranks: int) -> tuple[Allowance, ...]:
    """What is set aside on one GPU beside weights, keys, values and states.

    Graphs and activations were measured with vLLM 0.33 on a 35B model (hidden size 2048) with speculation
    of three drafts; activations grow with the hidden size. The others are round figures.
    """
    activations = int(0.81 * _GIB * shape.hidden / _MEASURED_WIDTH)
    allowances = [
        Allowance("CUDA context and libraries", _GIB, "a round figure"),
        Allowance("CUDA graphs", int(0.61 * _GIB), "measured: vLLM 0.33, 35B, three drafts"),
        Allowance("activations of 8,192 rows", activations, "measured at hidden size 2048, scaled"),
    ]
    if ranks > 1:
        allowances.append(Allowance("communication buffers", _GIB // 2, "a round figure"))
    return tuple(allowances)


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of one GPU, divided.

    Attributes:
        gpu: its data.
        ranks: GPUs that the model is split over.
        weights: bytes of weights on one rank.
        allowances: what is set aside.
        cost: what a sequence takes.
    """

    gpu: Gpu
    ranks: int
    weights: int
    allowances: tuple[Allowance, ...]
    cost: SequenceCost

    @property
    def set_aside(self) -> int:
        """Bytes of all allowances."""
        return sum(allowance.nbytes for allowance in self.allowances)

    @property
    def free(self) -> int:
        """Bytes left for sequences; negative when not even the weights fit."""
        return self.gpu.memory_bytes - self.weights - self.set_aside

    def shortfall(self, context: int, sequences: int) -> int:
        """Bytes that are missing on each GPU for so many sequences of so many tokens; 0 when they fit."""
        return max(0, sequences * self.cost.total(context) - self.free)

    def largest_concurrency(self, context: int) -> int:
        """Most sequences of so many tokens each."""
        each = self.cost.total(context)
        return min(MOST_SEQUENCES, max(0, self.free // each)) if each else MOST_SEQUENCES

    def largest_context(self, sequences: int = 1) -> int:
        """Most tokens of each of so many sequences; 0 when they do not fit."""
        left = self.free // max(sequences, 1) - self.cost.state
        if left <= 0 or not self.cost.key_value_per_token:
            return 0
        block = self.cost.block_tokens
        return int(left // (block * self.cost.key_value_per_token)) * block


@dataclass(frozen=True)
class FitRow:
    """One row of the table of what fits.

    Attributes:
        context: tokens of each sequence.
        fits: for each concurrency of the table whether it fits.
        most: largest concurrency.
    """

    context: int
    fits: tuple[bool, ...]
    most: int


def budget_for(
    gpu: Gpu,
    ranks: int,
    weights: WeightTable,
    shape: Shape,
    cost: SequenceCost,
    allowances: tuple[Allowance, ...] | None = None,
) -> MemoryBudget:
    """Divides one GPU's memory; the allowances are `default_allowances` when none are given."""
    heads = shape.key_value_heads
    per_rank = sum(row.per_rank(ranks, heads) for row in weights.groups)
    chosen = default_allowances(shape, ranks) if allowances is None else allowances
    return MemoryBudget(gpu, ranks, int(per_rank), chosen, cost)


def fit_table(
    budget: MemoryBudget,
    largest_context: int,
    contexts: Sequence[int] = CONTEXTS,
    concurrencies: Sequence[int] = CONCURRENCIES,
) -> tuple[FitRow, ...]:
    """Context against concurrency, for contexts that the model has positions for."""
    rows = []
    for context in (each for each in contexts if each <= largest_context):
        most = budget.largest_concurrency(context)
        rows.append(FitRow(context, tuple(count <= most for count in concurrencies), most))
    return tuple(rows)


def smallest_ranks(
    budget_with: Callable[[int], MemoryBudget], candidates: Sequence[int], context: int, sequences: int
) -> int | None:
    """The fewest GPUs of `candidates`, in order, with which it fits; None when it fits with none of them."""
    return next((ranks for ranks in candidates if not budget_with(ranks).shortfall(context, sequences)), None)
