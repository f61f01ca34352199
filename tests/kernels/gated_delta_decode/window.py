"""Windows for the device form, with the definition run beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState, ProjectedColumns
from draftproof.kernels.gated_delta_step.reference import (
    GatedDeltaParameters,
    RecurrentState,
    WindowRows,
    gated_delta_step,
)
from draftproof.kernels.step_geometry import StepGeometry

SLOTS = 6
SCRAP = 0
SPARE_COLUMNS = 4
"""Columns of a projected row that belong to nothing here."""

Decode = Callable[
    [
        Tensor,
        ProjectedColumns,
        GatedDeltaParameters,
        DeviceRecurrentState,
        StepGeometry,
        Commit,
        Tensor,
    ],
    None,
]


def make_parameters(spec: GatedDeltaNetSpec, device: str = "cpu") -> GatedDeltaParameters:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return GatedDeltaParameters(
        convolution=(normal(spec.conv_dim, spec.conv_kernel) * 0.5).to(device),
        negative_a=-normal(spec.num_value_heads).exp().to(device),
        dt_bias=(normal(spec.num_value_heads) - 1).to(device),
        norm=(1 + 0.1 * normal(spec.value_head_dim)).to(device),
        norm_epsilon=1e-6,
        num_key_heads=spec.num_key_heads,
        key_head_dim=spec.key_head_dim,
    )


@dataclass
class Lockstep:
    """The same windows through the device form and through `gated_delta_step`, which knows no device.

    The device's slots that no window names hold NaN, as does every stash row that was never written.
    """

    spec: GatedDeltaNetSpec
    decode: Decode
    window_rows: int
    device: str = "cpu"
    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.parameters = make_parameters(self.spec, self.device)
        self.state = DeviceRecurrentState.allocate(
            self.spec, SLOTS, self.window_rows, device=self.device, dtype=self.dtype
        )
        for pool in vars(self.state).values():
            pool.fill_(float("nan"))
        self.state.recurrent[SCRAP] = 0
        self.parity = torch.zeros(SLOTS, dtype=torch.int32, device=self.device)
        self.pending = torch.zeros(SLOTS, dtype=torch.int32, device=self.device)
        self.expected = RecurrentState(
            self.state.recurrent.clone(),
            self.state.convolution[0].float().clone(),
            self.state.stash_inputs[0].float().clone(),
            self.state.stash_log_decay[0].clone(),
            self.state.stash_beta[0].clone(),
        )

    def admit(self, slot: int, side: int) -> None:
        """A sequence with some history, whose newest side is `side`."""
        spec = self.spec
        recurrent = self._normal(spec.num_value_heads, spec.key_head_dim, spec.value_head_dim) * 0.3
        convolution = self._normal(spec.conv_kernel - 1, spec.conv_dim).to(self.dtype)
        self.state.recurrent[slot] = self.expected.recurrent[slot] = recurrent
        self.state.convolution[side, slot] = convolution
        self.expected.convolution[slot] = convolution.float()
        self.parity[slot] = side

    def prepare(self, slots: Sequence[int], rows: int) -> Launch:
        """Buffers of a launch, its rows not yet filled."""
        width = self.spec.conv_dim + self.spec.value_dim + 2 * self.spec.num_value_heads
        projected = torch.zeros(
            len(slots) * rows, width + SPARE_COLUMNS, dtype=self.dtype, device=self.device
        )
        geometry = StepGeometry(
            rows=rows,
            slots=torch.tensor(slots, dtype=torch.int32, device=self.device),
            lengths=torch.zeros(SLOTS, dtype=torch.int32, device=self.device),
            pending=self.pending,
            parity=self.parity,
            page_table=torch.zeros(SLOTS, 1, dtype=torch.int32, device=self.device),
            page_size=16,
        )
        out = projected.new_empty(len(slots) * rows, self.spec.value_dim)
        return Launch(projected, geometry, out)

    def refill(self, launch: Launch) -> None:
        """The next random rows; what was in `out` is poisoned."""
        launch.projected.copy_(self._normal(*launch.projected.shape))
        launch.out.fill_(float("nan"))

    def launch(self, launch: Launch, commit: Commit) -> None:
        """The form under test alone."""
        columns = ProjectedColumns.side_by_side(self.spec)
        self.decode(
            launch.projected, columns, self.parameters, self.state, launch.geometry, commit, launch.out
        )

    def run(self, slots: Sequence[int], pending: Sequence[int], rows: int, commit: Commit) -> Outcome:
        """One window of sequences in `slots`; a slot of `SCRAP` is padding and is not compared."""
        for slot, count in zip(slots, pending, strict=True):
            self.pending[slot] = count
        launch = self.prepare(slots, rows)
        self.refill(launch)
        self.launch(launch, commit)
        projected, out = launch.projected, launch.out
        live = [index for index, slot in enumerate(slots) if slot != SCRAP]
        live_slots = [slots[index] for index in live]
        expected = self._define(
            projected.view(len(slots), rows, -1)[live].float(),
            live_slots,
            [pending[index] for index in live],
            commit,
        )
        self.parity[live_slots] = 1 - self.parity[live_slots]
        return Outcome(
            out.view(len(slots), rows, -1)[live].float(),
            expected,
            self.state.recurrent[live_slots],
            self.expected.recurrent[live_slots],
            self.state.convolution[self.parity[live_slots].long(), live_slots].float(),
            self.expected.convolution[live_slots],
        )

    def _define(self, rows: Tensor, slots: list[int], pending: list[int], commit: Commit) -> Tensor:
        spec, (batch, count, _) = self.spec, rows.shape
        heads = spec.num_value_heads
        inputs, gate, a, b, _ = rows.split((spec.conv_dim, spec.value_dim, heads, heads, SPARE_COLUMNS), -1)
        window = WindowRows(
            slots=torch.tensor(slots, device=self.device),
            slot_range=None,
            pending=tuple(pending),
            row_counts=(count,) * batch,
            valid=None,
            commits_all=commit is Commit.ALL,
        )
        gate = gate.reshape(batch, count, heads, spec.value_head_dim)
        return gated_delta_step(inputs, gate, a, b, self.parameters, self.expected, window)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(self.device)


@dataclass(frozen=True)
class Launch:
    """Buffers of one launch."""

    projected: Tensor
    geometry: StepGeometry
    out: Tensor


@dataclass(frozen=True)
class Outcome:
    """What a window gave and what it should have given: outputs, recurrent state, convolution inputs."""

    out: Tensor
    expected_out: Tensor
    recurrent: Tensor
    expected_recurrent: Tensor
    convolution: Tensor
    expected_convolution: Tensor

    def assert_equal(self, out_tolerance: float, state_tolerance: float = 1e-5) -> None:
        torch.testing.assert_close(self.out, self.expected_out, atol=out_tolerance, rtol=out_tolerance)
        torch.testing.assert_close(
            self.recurrent, self.expected_recurrent, atol=state_tolerance, rtol=state_tolerance
        )
        torch.testing.assert_close(self.convolution, self.expected_convolution, atol=0, rtol=0)
