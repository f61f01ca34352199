"""Static buffers of a step: made once for the largest step, and seen by every smaller one as a part."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class ActivationWidths:
    """Widest row of each kind over all layers of a model, in elements.

    Attributes:
        hidden: of the residual stream.
        projected: of a mixer's projections.
        mixed: of a mixer's output before its output projection.
        activated: between the two matrices of a dense MLP; 0 without one.
        vocabulary: of the logits.
    """

    hidden: int
    projected: int
    mixed: int
    activated: int
    vocabulary: int


@dataclass(frozen=True)
class Room:
    """One flat buffer that rows of any width are cut from; ops that use it never overlap in time."""

    flat: Tensor

    def view(self, *shape: int) -> Tensor:
        """The leading part as a contiguous tensor of this shape."""
        return self.flat[: prod(shape)].view(shape)


@dataclass(frozen=True)
class ActivationBuffers:
    """Activations of one step at a time, shared by steps of every shape.

    Attributes:
        residual: the trunk's residual stream.
        head_window: the MTP head's residual stream over a window.
        head_row: the head's residual stream of one row a sequence.
        entry: the head's input: an embedding and a hidden state side by side.
        projected: of a mixer.
        mixed: of a mixer.
        activated: of a dense MLP.
        logits: float32.
    """

    residual: Room
    head_window: Room
    head_row: Room
    entry: Room
    projected: Room
    mixed: Room
    activated: Room
    logits: Room

    @staticmethod
    def allocate(
        widths: ActivationWidths, rows: int, dtype: torch.dtype, device: torch.device
    ) -> ActivationBuffers:
        """Buffers for steps of up to `rows` rows, poisoned with NaN: what a step reads, it has written."""

        def room(width: int, kind: torch.dtype = dtype) -> Room:
            return Room(torch.full((rows * width,), torch.nan, dtype=kind, device=device))

        return ActivationBuffers(
            residual=room(widths.hidden),
            head_window=room(widths.hidden),
            head_row=room(widths.hidden),
            entry=room(2 * widths.hidden),
            projected=room(widths.projected),
            mixed=room(widths.mixed),
            activated=room(widths.activated),
            logits=room(widths.vocabulary, torch.float32),
        )
