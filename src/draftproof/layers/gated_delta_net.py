"""Gated DeltaNet linear attention: projections around the fused window step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_step.host import gated_delta_step
from draftproof.kernels.gated_delta_step.reference import (
    GatedDeltaParameters,
    RecurrentState,
    WindowRows,
)
from draftproof.layers.linear import Linear


@dataclass(frozen=True)
class GatedDeltaNet:
    """One layer.

    Attributes:
        spec: head counts and widths.
        projections: hidden to [queries, keys, values, gate z, a, b] side by side.
        output: value heads back to hidden.
        parameters: convolution, decay and norm weights.
    """

    spec: GatedDeltaNetSpec
    projections: Linear
    output: Linear
    parameters: GatedDeltaParameters

    def __call__(self, hidden: Tensor, state: RecurrentState, rows: WindowRows) -> Tensor:
        """[batch, rows, hidden] to the same; moves the state as the window says."""
        spec = self.spec
        inputs, gate, a, b = self.projections(hidden).split_with_sizes(
            (spec.conv_dim, spec.value_dim, spec.num_value_heads, spec.num_value_heads), -1
        )
        gate = gate.view(*hidden.shape[:2], spec.num_value_heads, spec.value_head_dim)
        return self.output(gated_delta_step(inputs, gate, a, b, self.parameters, state, rows))
