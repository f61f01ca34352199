"""Copies of recurrent states at known lengths, for prompts that begin alike."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.layers.window import LayerState

StateRows = Iterable[tuple[Tensor, Tensor]]
"""Of each recurrent layer in order: recurrent state [value_heads, key_head_dim, value_head_dim] and
convolution inputs [conv_kernel - 1, conv_dim] of one sequence, with nothing pending on them."""


class KeptStates:
    """Places for the recurrent states of all layers after some sequence's first tokens.

    Args:
        trunk: pools of the layers; the recurrent ones say what a place holds.
        places: how many there are.
    """

    def __init__(self, trunk: tuple[LayerState, ...], places: int) -> None:
        pools = [state for state in trunk if isinstance(state, RecurrentState)]
        self._recurrent = [_places(state.recurrent, places) for state in pools]
        self._convolution = [_places(state.convolution, places) for state in pools]
        self._positions = [0] * places

    def save(self, place: int, position: int, rows: StateRows) -> None:
        """Copy the state after `position` tokens into a place."""
        for recurrent, convolution, (state, inputs) in zip(
            self._recurrent, self._convolution, rows, strict=True
        ):
            recurrent[place] = state
            convolution[place] = inputs
        self._positions[place] = position

    def restore(self, place: int, position: int, rows: StateRows) -> None:
        """Copy a place over a sequence's state.

        Raises:
            ValueError: what lies there is the state after another number of tokens.
        """
        if self._positions[place] != position:
            raise ValueError(
                f"snapshot {place} holds the state after {self._positions[place]} tokens, not {position}"
            )
        for recurrent, convolution, (state, inputs) in zip(
            self._recurrent, self._convolution, rows, strict=True
        ):
            state.copy_(recurrent[place])
            inputs.copy_(convolution[place])


def _places(pool: Tensor, places: int) -> Tensor:
    return pool.new_zeros((places, *pool.shape[1:]))
