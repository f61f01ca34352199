"""What every check needs: random numbers, the comparison, and the judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.device.shapes import StepShape
from draftproof.device.weights import DeviceModel
from draftproof.errors import EngineFault
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.kernels.select import StepKernels
from draftproof.runtime.state_store import StateSizes

TOLERANCE = 0.05
"""Largest error: BF16 rounds by 0.004 of a number's size, and sums of thousands of products, taken in another
order, differ by less than 0.03 of their spread."""


@dataclass(frozen=True)
class CheckedCall:
    """One comparison.

    Attributes:
        op: which kernel.
        subject: weights and rows, in words.
        error: the largest, in units of the outputs' spread and their own size; of tokens, the share that
            differs.
    """

    op: str
    subject: str
    error: float


@dataclass(frozen=True)
class CheckSubject:
    """What is checked, and on what.

    Attributes:
        kernels: in force.
        model: the weights.
        shapes: of the steps that are going to run.
        sizes: of the state that they are going to run on; the checks make little of it for themselves.
        choices: how tokens are chosen.
    """

    kernels: StepKernels
    model: DeviceModel
    shapes: Sequence[StepShape]
    sizes: StateSizes
    choices: Sequence[RowChoice] = tuple(RowChoice)

    @property
    def device(self) -> torch.device:
        """Where all of it is."""
        return self.model.embedding.device

    def numbers(self) -> Numbers:
        """The same numbers for every check."""
        return Numbers(self.model.embedding)

    def judged(self, call: CheckedCall, tolerance: float = TOLERANCE) -> CheckedCall:
        """The call.

        Raises:
            EngineFault: its error is no number or too large.
        """
        # NaN is not smaller than anything.
        if call.error < tolerance:
            return call
        raise EngineFault(
            f"kernel {call.op} on {self.kernels.report.place} is wrong: {call.subject}: "
            f"largest error {call.error:.3g} of the outputs' size",
            "Nothing was generated; `draftproof doctor` shows the kernels in force.",
        )


class Numbers:
    """Random numbers on the device of a tensor, activations in its dtype."""

    def __init__(self, beside: Tensor) -> None:
        self._dtype = beside.dtype
        self._generator = torch.Generator(beside.device).manual_seed(0)

    def random(self, *shape: int) -> Tensor:
        """Activations, standard normal."""
        return self.wide(*shape).to(self._dtype)

    def wide(self, *shape: int) -> Tensor:
        """The same as float32."""
        return torch.randn(*shape, device=self._generator.device, generator=self._generator)

    def shares(self, *shape: int) -> Tensor:
        """Float32 between 0 and 1."""
        return torch.rand(*shape, device=self._generator.device, generator=self._generator)


def error_of(found: Tensor, expected: Tensor) -> float:
    """The largest difference in units of the expected numbers' spread and of the number's own size, which is
    what rounding goes by; NaN when anything found is none."""
    wide = expected.float()
    return float(((found.float() - wide).abs() / (wide.std() + wide.abs())).max())


def integers(values: Sequence[int], device: torch.device) -> Tensor:
    """[values] int32."""
    return torch.tensor(values, dtype=torch.int32, device=device)


def taking_turns(values: Sequence[int], count: int) -> list[int]:
    """`count` of them, again from the first when they are used up."""
    return [values[index % len(values)] for index in range(count)]
