"""The kernels of one step, in order. Nothing here depends on what the sequences hold: all of that is on the
device, so that the same calls can be recorded once and replayed for every step of a shape."""

from __future__ import annotations

from torch import Tensor

from draftproof.device.shapes import StepShape
from draftproof.device.state import DeviceLayerState, DeviceState
from draftproof.device.weights import (
    AttentionMixer,
    DenseMlp,
    DeviceHead,
    DeviceLayer,
    DeviceModel,
    MixtureMlp,
    Projections,
    RecurrentMixer,
)
from draftproof.device.workspace import MixtureSpace, StepWorkspace
from draftproof.kernels.advance.state import EmittedRing, SimulatedAcceptance
from draftproof.kernels.decode_attention.parameters import AttentionScratch, Past
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.select import StepKernels
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.layers.window import KeyValueCache


class StepProgram:
    """Verify, sample, accept, draft: the calls of one shape.

    Args:
        kernels: one callable for each op.
        model: weights.
        state: of all sequences.
        workspace: buffers of this shape.
        ring: where emitted tokens go.
        simulation: decides acceptance instead of equality; None outside of benchmarks.
    """

    def __init__(
        self,
        kernels: StepKernels,
        model: DeviceModel,
        state: DeviceState,
        workspace: StepWorkspace,
        ring: EmittedRing,
        simulation: SimulatedAcceptance | None = None,
    ) -> None:
        self._kernels = kernels
        self._model = model
        self._state = state
        self._workspace = workspace
        self._ring = ring
        self._simulation = simulation
        self._window = state.geometry(workspace.slots, workspace.shape.rows)

    @property
    def shape(self) -> StepShape:
        """Of every step."""
        return self._workspace.shape

    def run(self) -> None:
        """A whole step."""
        self.verify()
        space, state = self._workspace, self._state
        self._kernels.sample_and_advance(
            space.logits,
            self._window,
            state.sampling,
            space.choice,
            space.sampling_scratch,
            space.sampled,
            state.progress,
            state.rules,
            space.outcome,
            self._ring,
            self._simulation,
        )
        self._draft()

    def verify(self) -> None:
        """Embed the windows and run the target: logits of every row."""
        space, model = self._workspace, self._model
        residual = space.residual
        self._kernels.embed_inputs(self._state.progress.inputs, space.slots, model.embedding, residual)
        for layer, state in zip(model.layers, self._state.trunk, strict=True):
            self._mix(layer, state, residual)
            self._mlp(layer.mlp, residual, space.window_mixture)
        self._kernels.packed_linear(residual, model.lm_head, norm=model.norm, out=space.logits)

    def conclude(self) -> None:
        """Accept and move on by tokens that the host chose, then draft for the next step."""
        space = self._workspace
        self._kernels.advance(
            space.sampled,
            space.slots,
            self._state.progress,
            self._state.rules,
            space.outcome,
            self._ring,
            self._simulation,
        )
        self._draft()

    def _mix(self, layer: DeviceLayer, state: DeviceLayerState, residual: Tensor) -> None:
        mixer, space, kernels = layer.mixer, self._workspace, self._kernels
        rows = residual.shape[0]
        projected = self._project(residual, mixer.norm, mixer.projections)
        mixed = space.mixed.view(rows, mixer.width)
        if isinstance(mixer, RecurrentMixer):
            assert isinstance(state, DeviceRecurrentState)
            # The row of a step without drafts is certain.
            commit = Commit.STASH if self.shape.draft_tokens else Commit.ALL
            kernels.gated_delta_decode(
                projected, mixer.columns, mixer.parameters, state, self._window, commit, mixed
            )
        else:
            # What the window sees was written by earlier steps: only `conclude` moves it.
            self._attend(mixer, state, projected, self._window, space.attention_scratch, mixed, Past.SETTLED)
        kernels.packed_linear(mixed, mixer.output, residual=residual, out=residual)

    def _attend(
        self,
        mixer: AttentionMixer,
        state: DeviceLayerState,
        projected: Tensor,
        geometry: StepGeometry,
        scratch: AttentionScratch | None,
        mixed: Tensor,
        past: Past = Past.MOVING,
    ) -> None:
        assert isinstance(state, KeyValueCache)
        assert scratch is not None
        self._kernels.decode_attention(
            projected, mixer.parameters, state.keys, state.values, geometry, scratch, out=mixed, past=past
        )

    def _project(self, residual: Tensor, norm: NormScale, projections: Projections) -> Tensor:
        projected = self._workspace.projected.view(residual.shape[0], projections.width)
        begin = 0
        for matrix in projections.matrices:
            out = projected[:, begin : begin + matrix.outputs]
            self._kernels.packed_linear(residual, matrix, norm=norm, out=out)
            begin += matrix.outputs
        return projected

    def _mlp(self, mlp: DenseMlp | MixtureMlp, residual: Tensor, mixture: MixtureSpace | None) -> None:
        kernels = self._kernels
        if isinstance(mlp, MixtureMlp):
            assert mixture is not None
            kernels.route(residual, mlp.norm, mlp.router, mlp.spec, mixture.routing_scratch, mixture.routing)
            kernels.experts_step(
                residual, mlp.norm, mlp.experts, mlp.shared, mixture.routing, mixture.scratch
            )
            return
        activated = self._workspace.activated.view(residual.shape[0], mlp.width)
        kernels.packed_linear(
            residual, mlp.gate_up, norm=mlp.norm, out=activated, epilogue=Epilogue.SILU_PAIRS
        )
        kernels.packed_linear(activated, mlp.down, residual=residual, out=residual)

    def _draft(self) -> None:
        """The head over the window, then its chain: as many drafts as the window has."""
        head = self._model.head
        if head is None or self.shape.draft_tokens == 0:
            return
        residual = self._head_window(head)
        self._choose_draft(head, residual, 1)
        for place in range(1, self.shape.draft_tokens):
            self._head_row(head, residual, place)
            self._choose_draft(head, residual, place + 1)

    def _head_window(self, head: DeviceHead) -> Tensor:
        """Keys and values of all rows of the window, and the head's residual stream [batch, hidden] at each
        sequence's last committed row; rows past it are dead."""
        space, kernels, mixer = self._workspace, self._kernels, head.layer.mixer
        shape, hidden = self.shape, self._model.embedding.shape[1]
        assert isinstance(mixer, AttentionMixer)
        entry = space.entry.view(shape.all_rows, 2 * hidden)
        kernels.enter_head(
            space.sampled,
            space.residual,
            self._model.embedding,
            head.embedding_norm,
            self._model.norm,
            head.hidden_norm,
            entry,
        )
        window = space.head_window.view(shape.all_rows, hidden)
        kernels.packed_linear(entry, head.entry, out=window)
        projected = self._project(window, mixer.norm, mixer.projections)
        mixed = space.mixed.view(shape.batch, mixer.width)
        cache = self._state.head[0]
        kernels.decode_attention_selected(
            projected,
            mixer.parameters,
            cache.keys,
            cache.values,
            self._state.geometry(space.slots, shape.rows, space.outcome.window_lengths),
            space.outcome.accepted,
            space.head_scratch,
            out=mixed,
        )
        residual = space.head_row.view(shape.batch, hidden)
        kernels.last_rows(window, space.outcome.accepted, residual)
        kernels.packed_linear(mixed, mixer.output, residual=residual, out=residual)
        self._mlp(head.layer.mlp, residual, space.head_mixture)
        return residual

    def _head_row(self, head: DeviceHead, residual: Tensor, place: int) -> None:
        """One more row of the chain: from draft number `place` and the residual stream that chose it."""
        space, kernels, mixer = self._workspace, self._kernels, head.layer.mixer
        batch, hidden = residual.shape
        assert isinstance(mixer, AttentionMixer)
        entry = space.entry.view(batch, 2 * hidden)
        kernels.enter_chain(
            self._state.progress.inputs,
            place,
            space.slots,
            residual,
            self._model.embedding,
            head.embedding_norm,
            head.norm,
            head.hidden_norm,
            entry,
        )
        kernels.packed_linear(entry, head.entry, out=residual)
        projected = self._project(residual, mixer.norm, mixer.projections)
        mixed = space.mixed.view(batch, mixer.width)
        geometry = self._state.geometry(space.slots, 1, space.outcome.draft_lengths[place - 1])
        self._attend(mixer, self._state.head[0], projected, geometry, space.head_scratch, mixed)
        kernels.packed_linear(mixed, mixer.output, residual=residual, out=residual)
        self._mlp(head.layer.mlp, residual, space.head_mixture)

    def _choose_draft(self, head: DeviceHead, residual: Tensor, place: int) -> None:
        space, drafts = self._workspace, head.drafts
        logits = space.draft_logits.view(residual.shape[0], drafts.matrix.rows)
        self._kernels.packed_linear(residual, drafts.matrix, norm=head.norm, out=logits)
        self._kernels.sample_drafts(
            logits,
            self._state.geometry(space.slots, 1, space.outcome.draft_lengths[place - 1]),
            self._state.sampling,
            space.choice,
            space.sampling_scratch,
            drafts.token_ids,
            self._state.progress.inputs,
            place,
        )
