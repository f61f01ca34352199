"""Link 3 in data: how a stack's source treats the MTP head of one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading


class Fate(Enum):
    """What the stack's loader does with a tensor of the head."""

    LANDS = "lands in a parameter"
    SHARED = "is read, then replaced by the target's"
    SKIPPED_SILENTLY = "is skipped without a word"
    SKIPPED_WITH_LOG = "is skipped, and logged"
    REFUSED = "stops the start"
    LEFT_OUT = "belongs to a layer that this stack does not run"
    NOT_UNDERSTOOD = "could not be followed"


@dataclass(frozen=True)
class TensorLanding:
    """What becomes of tensors that differ in nothing but an expert's number.

    Attributes:
        tensor: name on disk; "{e}" stands for the expert's number.
        count: how many tensors this is.
        fate: what the loader does.
        parameter: qualified name of the draft model's parameter; empty when it lands nowhere.
        shard: the part of a fused parameter: "q", "0", "w1"; empty for a whole one.
        stored: precision on disk, by `checkpoint.precision.Precision.value`.
        built: precision of the parameter that the stack builds; empty when not known.
        places: lines of the loader that decide.
        sentence: what happens, for people.
    """

    tensor: str
    count: int
    fate: Fate
    parameter: str
    shard: str
    stored: str
    built: str
    places: tuple[Place, ...]
    sentence: str


@dataclass(frozen=True)
class UnwrittenParameter:
    """A parameter of the draft model that no tensor of the checkpoint lands in.

    Attributes:
        name: qualified name; "{e}" for an expert's number.
        place: where the stack makes it.
    """

    name: str
    place: Place


class Noticing(Enum):
    """What the stack does about an unwritten parameter."""

    ERROR = "stops the start"
    WARNING = "warns and serves"
    NOTHING = "serves without a word"


@dataclass(frozen=True)
class HeadSupport:
    """All that link 3 needs.

    Attributes:
        target: the class registered for the checkpoint's own architecture.
        draft_architecture: the architecture that the stack maps it to for the draft.
        draft_class: the class of that name.
        registration: where it is registered.
        implementation: what it does in forward and weight loading; absent when it is a stub.
        head_precision: the precision that the stack builds the head in, by module group in words.
        landings: the fate of every tensor of the head.
        unwritten: parameters that stay unwritten; an empty tuple is a found value.
        noticing: whether the stack would notice unwritten parameters.
        defects: known defects, and whether each is in this source and matters to this checkpoint.
    """

    target: Reading[str]
    draft_architecture: Reading[str]
    draft_class: Reading[str]
    registration: Reading[str]
    implementation: Reading[str]
    head_precision: Reading[str]
    landings: Reading[tuple[TensorLanding, ...]]
    unwritten: Reading[tuple[UnwrittenParameter, ...]]
    noticing: Reading[Noticing]
    defects: tuple[DefectFinding, ...]
