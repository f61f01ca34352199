"""What the engine will take of the GPU's memory, by group, before any of it is taken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from draftproof.architecture.spec import ModelSpec
from draftproof.architecture.tensor_plan import ModelPart
from draftproof.errors import EnvironmentProblem
from draftproof.hardware.sequence_cost import sequence_cost
from draftproof.hardware.shape import shape_of
from draftproof.hardware.state_layout import StateLayout
from draftproof.hardware.weights import WeightTable

RESERVED = 2 << 30
"""CUDA context, libraries, compiled kernels and recorded graphs: a round figure."""
LOGIT_BYTES = 4
KEYS_AND_VALUES = "keys and values"
PACKING_COPIES = 2
"""Of what is packed, besides the result: as it was stored, and halfway."""
_GIGA = 1e9


@dataclass(frozen=True)
class MemoryItem:
    """Bytes for one purpose."""

    purpose: str
    nbytes: float


@dataclass(frozen=True)
class MemoryPlan:
    """All purposes."""

    items: tuple[MemoryItem, ...]

    @property
    def total(self) -> float:
        """Bytes of all."""
        return sum(item.nbytes for item in self.items)

    def of(self, purpose: str) -> float:
        """Bytes for a purpose."""
        return sum(item.nbytes for item in self.items if item.purpose == purpose)

    def require(self, room: int, subject: str, remedy: str) -> None:
        """Refuse what does not fit.

        Args:
            room: bytes that it may take.
            subject: what would be loaded.
            remedy: what may be changed about it.

        Raises:
            EnvironmentProblem: it needs more; the message holds the budget by group.
        """
        if self.total <= room:
            return
        groups = ", ".join(f"{item.purpose} {item.nbytes / _GIGA:.1f}" for item in self.items)
        raise EnvironmentProblem(
            f"{subject} needs {self.total / _GIGA:.1f} GB of GPU memory and may take {room / _GIGA:.1f} GB "
            f"({groups})",
            remedy,
        )


@dataclass(frozen=True)
class SharedState:
    """State that sequences share.

    Attributes:
        positions: of keys and values.
        snapshots: recurrent states that are kept for prompts to come.
    """

    positions: int
    snapshots: int = 0


def memory_plan(
    spec: ModelSpec,
    weights: WeightTable,
    sequences: int,
    positions: int,
    window_rows: int,
    shared: SharedState | None = None,
) -> MemoryPlan:
    """The budget of decoding.

    Args:
        spec: the model.
        weights: its weights as they are stored; packing adds a per cent at most.
        sequences: at once.
        positions: longest sequence.
        window_rows: rows of the widest window.
        shared: what there is for all sequences together; None for room for each at its longest, and nothing
            kept.
    """
    shape = shape_of(spec)
    shared = shared or SharedState((sequences + 1) * positions)
    groups: dict[str, float] = defaultdict(float)
    for row in weights.groups:
        groups["MTP head" if row.part is ModelPart.MTP else row.group.value] += row.nbytes
    # Convolution inputs and those of the newest window have two sides.
    columns = shape.recurrent.conv_kernel - 1 if shape.recurrent else 0
    layout = StateLayout(1, 0, 4, extra_convolution_columns=columns, kept_rows=2 * window_rows)
    cost = sequence_cost(shape, layout, 1)
    rows = sequences * window_rows
    # Of one layer at a time; the head has one.
    largest = max(row.nbytes / (1 if row.part is ModelPart.MTP else shape.layers) for row in weights.groups)
    items = [MemoryItem(f"weights: {group}", nbytes) for group, nbytes in groups.items() if nbytes > 1e7]
    items += [
        MemoryItem("recurrent states", (sequences + 1) * cost.state),
        MemoryItem("kept prompts", shared.snapshots * sequence_cost(shape, StateLayout(1, 0, 4), 1).state),
        MemoryItem(KEYS_AND_VALUES, shared.positions * cost.key_value_per_token),
        MemoryItem("logits", rows * shape.vocabulary * LOGIT_BYTES),
        MemoryItem("packing one layer", PACKING_COPIES * largest),
        MemoryItem("CUDA and graphs", RESERVED),
    ]
    return MemoryPlan(tuple(items))
