"""Link 5 in data: which kernels a stack will choose on a GPU, and how it keeps state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.defect import DefectFinding
from draftproof.stacks.launch_facts import Requirement
from draftproof.stacks.reading import Reading

__all__ = ["BackendFacts", "KernelChoice", "Operation", "Phase", "StateLayout"]


class Operation(Enum):
    """The kind of kernel."""

    DENSE_GEMM = "dense GEMM"
    EXPERT_GEMM = "expert GEMM"
    ATTENTION = "attention"
    GATED_DELTA_NET = "Gated DeltaNet"


class Phase(Enum):
    """When it runs."""

    ANY = "any"
    PREFILL = "prefill"
    DECODE = "decode"
    VERIFY = "verify"
    DRAFT = "draft"


@dataclass(frozen=True)
class KernelChoice:
    """The kernel that a stack will choose for one group of modules.

    Attributes:
        operation: what kind.
        group: modules in words: "routed experts", "mixers", "lm_head", "MTP experts".
        precision: of their weights, by `checkpoint.precision.Precision.value`; empty for attention and GDN.
        phase: when.
        backend: its name in the stack; `places` holds the selector.
        valid: whether it can run this on this compute capability; `places` holds the gate.
        native: True when it uses the GPU's own units for the precision, False when it converts weights to
            something wider first; None when not known.
        explicit: the option that asks for the right backend by name; empty when there is none or no need.
        needs: what must be installed for it.
        is_promised: there are no files that show the precision: it is what a config promises.
    """

    operation: Operation
    group: str
    precision: str
    phase: Phase
    backend: Reading[str]
    valid: Reading[bool]
    native: bool | None = None
    explicit: str = ""
    needs: tuple[Requirement, ...] = ()
    is_promised: bool = False


@dataclass(frozen=True)
class BackendFacts:
    """All that link 5 needs from a stack.

    Attributes:
        choices: the kernels, in the order of a step.
        state_layout: of the recurrent state.
        requirements: what must be installed for the choices.
        defects: known defects of this link.
    """

    choices: tuple[KernelChoice, ...]
    state_layout: Reading[StateLayout]
    requirements: tuple[Requirement, ...] = ()
    defects: tuple[DefectFinding, ...] = ()
