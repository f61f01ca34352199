"""A parameter of a draft model, as a stack's own constructors build it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BuiltParameter:
    """One parameter of the draft model.

    Attributes:
        name: qualified.
        shape: as built, on one rank.
        dtype: torch's name.
        writes: names of the checkpoint's tensors that were copied into it, with the number of elements, in
            order.
        is_filled: it was made with contents (zeros, ones).
        owner: what of the target took its place afterwards; empty when nothing did.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    writes: tuple[tuple[str, int], ...]
    is_filled: bool
    owner: str

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for side in self.shape:
            count *= side
        return count

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors in it."""
        return tuple(name for name, _ in self.writes)
