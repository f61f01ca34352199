"""Each kernel of a step alone: all layers' launches of one op in one graph, so that weights rotate through
more than the caches hold; the time of one launch, its bytes, and its share of the measured bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from draftproof.bench.place import Place
from draftproof.bench.subject import Subject
from draftproof.device.buffers import ActivationBuffers
from draftproof.device.checks.products import describe
from draftproof.device.graphs import Recorder
from draftproof.device.shapes import StepShape
from draftproof.device.weights import AttentionMixer, DenseMlp, DeviceLayer, MixtureMlp, RecurrentMixer
from draftproof.device.workspace import MixtureSpace, StepWorkspace, make_workspace
from draftproof.kernels.decode_attention.parameters import Past
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.routing.routing import FewRowsRouting
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch
from draftproof.kernels.select import StepKernels
from draftproof.layers.window import KeyValueCache

REPEATS = 15
LEAST_LAUNCHES = 8
"""Launches of a graph at least; an op with fewer places in the model is launched again and again."""


@dataclass(frozen=True)
class MicroFigure:
    """One op on one kind of weights.

    Attributes:
        op: the field of `StepKernels`.
        subject: weights or state, in words.
        rows: of the call.
        microseconds: of one launch, median.
        nbytes: that a launch must move.
    """

    op: str
    subject: str
    rows: int
    microseconds: float
    nbytes: float

    def share(self, bandwidth: float) -> float:
        """Of the measured bandwidth."""
        return self.nbytes / (self.microseconds * 1e-6) / bandwidth


@dataclass(frozen=True)
class _Series:
    """Launches of one kind."""

    op: str
    subject: str
    nbytes: float
    launches: Sequence[Callable[[], None]]


def microbenchmarks(
    place: Place, subject: Subject, kernels: StepKernels, recorder: Recorder, shape: StepShape
) -> Iterator[MicroFigure]:
    """Time every op of a step's trunk.

    Args:
        place: the device.
        subject: model and state; its first `shape.batch` slots hold sequences.
        kernels: in force.
        recorder: graphs, or eager.
        shape: of the step.
    """
    buffers = ActivationBuffers.allocate(
        subject.model.widths, shape.all_rows, torch.bfloat16, subject.model.embedding.device
    )
    scratch = SamplingScratch.make(
        shape.all_rows, subject.model.lm_head.rows, RowChoice.LARGEST, subject.model.embedding.device
    )
    space = make_workspace(shape, RowChoice.LARGEST, subject.model, subject.state, buffers, scratch)
    space.slots.copy_(torch.arange(shape.batch, dtype=torch.int32))
    space.residual.normal_()
    for series in _Ops(subject, kernels, space).all():
        yield MicroFigure(
            series.op, series.subject, shape.all_rows, _time(place, recorder, series.launches), series.nbytes
        )


def _time(place: Place, recorder: Recorder, launches: Sequence[Callable[[], None]]) -> float:
    rounds = -(-LEAST_LAUNCHES // len(launches))

    def all_of_them() -> None:
        for _ in range(rounds):
            for launch in launches:
                launch()

    replay = recorder.record(all_of_them)
    samples = []
    for _ in range(REPEATS):
        clock = place.clock()
        replay()
        clock.stop()
        samples.append(clock.seconds())
    return median(samples) * 1e6 / (rounds * len(launches))


class _Ops:
    """The launches of every op."""

    def __init__(self, subject: Subject, kernels: StepKernels, space: StepWorkspace) -> None:
        self._subject = subject
        self._kernels = kernels
        self._space = space
        self._rows = space.shape.all_rows
        self._geometry = subject.state.geometry(space.slots, space.shape.rows)

    def all(self) -> Iterator[_Series]:
        """Projections by kind, routing, experts, gated delta, attention, sampling."""
        yield from self._products()
        yield from self._mixtures()
        yield from self._mixers()
        yield _Series("sample_rows", "logits", self._space.logits.numel() * 4.0, [self._sample])

    def _products(self) -> Iterator[_Series]:
        by_kind: dict[str, list[tuple[PackedMatrix, NormScale | None]]] = {}
        for layer in self._subject.model.layers:
            for matrix, norm in _matrices(layer):
                by_kind.setdefault(describe(matrix), []).append((matrix, norm))
        model = self._subject.model
        by_kind.setdefault(describe(model.lm_head), []).append((model.lm_head, model.norm))
        if model.head is not None and model.head.drafts.matrix is not model.lm_head:
            drafts = model.head.drafts.matrix
            by_kind.setdefault(f"{describe(drafts)} draft head", []).append((drafts, model.head.norm))
        for kind, members in by_kind.items():
            yield _Series(
                "packed_linear",
                kind,
                float(members[0][0].bytes),
                [self._product(matrix, norm) for matrix, norm in members],
            )

    def _product(self, matrix: PackedMatrix, norm: NormScale | None) -> Callable[[], None]:
        x = torch.randn(self._rows, matrix.columns, device=matrix.blocks.device).bfloat16()
        outputs = matrix.rows // 2 if matrix.paired else matrix.outputs
        is_head = matrix.rows == self._subject.model.lm_head.rows
        kind = torch.float32 if is_head else torch.bfloat16
        out = torch.empty(self._rows, outputs, dtype=kind, device=x.device)
        residual = None if norm is not None else out.zero_()
        epilogue = Epilogue.SILU_PAIRS if matrix.paired else Epilogue.NONE

        def launch() -> None:
            self._kernels.packed_linear(x, matrix, norm=norm, residual=residual, out=out, epilogue=epilogue)

        return launch

    def _mixtures(self) -> Iterator[_Series]:
        mlps = [layer.mlp for layer in self._subject.model.layers if isinstance(layer.mlp, MixtureMlp)]
        space = self._space.window_mixture
        if not mlps or space is None:
            return
        yield _Series("route", "router", float(mlps[0].router.bytes), [self._route(m, space) for m in mlps])
        # The outcome of the last routing stands for all layers: ids are spread alike in each.
        self._route(mlps[-1], space)()
        distinct = _distinct(space)
        experts = mlps[0].experts
        nbytes = distinct * _expert_bytes(experts)
        if (shared := mlps[0].shared) is not None:
            nbytes += shared.gate_up.bytes + shared.down.bytes
        yield _Series(
            "experts_step",
            f"{experts.format.value}, {distinct} distinct",
            nbytes,
            [self._experts(m, space) for m in mlps],
        )

    def _route(self, mlp: MixtureMlp, space: MixtureSpace) -> Callable[[], None]:
        return lambda: self._kernels.route(
            self._space.residual, mlp.norm, mlp.router, mlp.spec, space.routing_scratch, space.routing
        )

    def _experts(self, mlp: MixtureMlp, space: MixtureSpace) -> Callable[[], None]:
        residual = torch.randn_like(self._space.residual)
        return lambda: self._kernels.experts_step(
            residual, mlp.norm, mlp.experts, mlp.shared, space.routing, space.scratch
        )

    def _mixers(self) -> Iterator[_Series]:
        model, state = self._subject.model, self._subject.state
        recurrent: list[Callable[[], None]] = []
        attention: list[Callable[[], None]] = []
        recurrent_bytes = attention_bytes = 0.0
        for layer, layer_state in zip(model.layers, state.trunk, strict=True):
            mixer = layer.mixer
            if isinstance(mixer, RecurrentMixer) and isinstance(layer_state, DeviceRecurrentState):
                recurrent.append(self._gated_delta(mixer, layer_state))
                one = layer_state.recurrent[0]
                recurrent_bytes = 2.0 * self._space.shape.batch * one.numel() * one.element_size()
            elif isinstance(mixer, AttentionMixer) and isinstance(layer_state, KeyValueCache):
                attention.append(self._attention(mixer, layer_state))
                position = layer_state.keys[0, 0]
                context = int(state.progress.lengths[: self._space.shape.batch].sum())
                attention_bytes = 2.0 * context * position.numel() * position.element_size()
        if recurrent:
            yield _Series("gated_delta_decode", "float32 state", recurrent_bytes, recurrent)
        if attention:
            yield _Series("decode_attention", "bf16 pages", attention_bytes, attention)

    def _gated_delta(self, mixer: RecurrentMixer, state: DeviceRecurrentState) -> Callable[[], None]:
        projected = self._random(mixer.projections.width)
        out = torch.empty_like(projected[:, : mixer.width]).contiguous()
        commit = Commit.STASH if self._space.shape.draft_tokens else Commit.ALL
        return lambda: self._kernels.gated_delta_decode(
            projected, mixer.columns, mixer.parameters, state, self._geometry, commit, out
        )

    def _attention(self, mixer: AttentionMixer, cache: KeyValueCache) -> Callable[[], None]:
        projected = self._random(mixer.projections.width)
        out = torch.empty_like(projected[:, : mixer.width]).contiguous()
        scratch = self._space.attention_scratch
        return lambda: self._kernels.decode_attention(
            projected,
            mixer.parameters,
            cache.keys,
            cache.values,
            self._geometry,
            scratch,
            out=out,
            past=Past.SETTLED,
        )

    def _sample(self) -> None:
        space = self._space
        self._kernels.sample_rows(
            space.logits,
            self._geometry,
            self._subject.state.sampling,
            space.choice,
            space.sampling_scratch,
            space.sampled,
        )

    def _random(self, width: int) -> Tensor:
        return torch.randn(self._rows, width, device=self._space.residual.device).bfloat16()


def _matrices(layer: DeviceLayer) -> Iterator[tuple[PackedMatrix, NormScale | None]]:
    """Matrices of one layer with the norm in front of them; those without one add to the residual."""
    for matrix in layer.mixer.projections.matrices:
        yield matrix, layer.mixer.norm
    yield layer.mixer.output, None
    if isinstance(layer.mlp, DenseMlp):
        yield layer.mlp.gate_up, layer.mlp.norm
        yield layer.mlp.down, None


def _distinct(space: MixtureSpace) -> int:
    """Experts that the outcome of a routing names."""
    routing = space.routing
    if isinstance(routing, FewRowsRouting):
        return int(routing.distinct[0])
    return int((routing.offsets.diff() > 0).sum())


def _expert_bytes(experts: PackedExperts) -> float:
    """Weights and scales of one expert."""
    tensors = (
        experts.gate_up,
        experts.down,
        experts.gate_up_scale,
        experts.down_scale,
        experts.gate_up_block_scale,
        experts.down_block_scale,
    )
    return sum(each[0].numel() * each.element_size() for each in tensors if each is not None)
