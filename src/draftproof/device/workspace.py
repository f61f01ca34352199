"""The buffers of one shape of steps: parts of the shared activations, and what each shape has for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.device.buffers import ActivationBuffers, Room
from draftproof.device.shapes import StepShape
from draftproof.device.state import DeviceState
from draftproof.device.weights import AttentionMixer, DeviceLayer, DeviceModel, MixtureMlp
from draftproof.kernels.advance.state import PassOutcome
from draftproof.kernels.decode_attention.parameters import (
    AttentionParameters,
    AttentionScratch,
    make_scratch,
)
from draftproof.kernels.experts_step.operands import ExpertsScratch, experts_scratch
from draftproof.kernels.packed_weights.formats import TILE_ROWS
from draftproof.kernels.routing.routing import Routing, RoutingScratch, allocate_routing, routing_scratch
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch


@dataclass(frozen=True)
class MixtureSpace:
    """What mixtures of experts need for a number of rows; layers that run one after the other share it."""

    routing: Routing
    routing_scratch: RoutingScratch
    scratch: ExpertsScratch


@dataclass(frozen=True)
class StepWorkspace:
    """Buffers of one shape.

    Attributes:
        shape: whose.
        choice: what sampling must be able to do.
        slots: [batch] int32, written by the host when the batch changes.
        residual: [batch * rows, hidden].
        logits: [batch * rows, vocabulary] float32.
        sampled: [batch * rows] int32, the target's own tokens.
        outcome: what was accepted.
        head_window, head_row, entry, projected, mixed, activated: as in `ActivationBuffers`.
        draft_logits: of the head; the target's have been read by then.
        attention_scratch: of the trunk's windows; None without attention in the trunk.
        head_scratch: of the head's single rows; None without a head.
        sampling_scratch: of the target's rows and of drafts.
        window_mixture: of the trunk's mixtures; None without any.
        head_mixture: of the head's, for a row of each sequence.
    """

    shape: StepShape
    choice: RowChoice
    slots: Tensor
    residual: Tensor
    logits: Tensor
    sampled: Tensor
    outcome: PassOutcome
    head_window: Room
    head_row: Room
    entry: Room
    projected: Room
    mixed: Room
    activated: Room
    draft_logits: Room
    attention_scratch: AttentionScratch | None
    head_scratch: AttentionScratch | None
    sampling_scratch: SamplingScratch
    window_mixture: MixtureSpace | None
    head_mixture: MixtureSpace | None


def make_workspace(
    shape: StepShape,
    choice: RowChoice,
    model: DeviceModel,
    state: DeviceState,
    buffers: ActivationBuffers,
    sampling_scratch: SamplingScratch,
) -> StepWorkspace:
    """Buffers for steps of a shape, all of whose places are unused.

    Args:
        shape: whose.
        choice: what sampling must be able to do.
        model: weights.
        state: of all sequences.
        buffers: activations, of at least as many rows.
        sampling_scratch: for this choice, of at least as many rows.
    """
    device = model.embedding.device
    hidden, vocabulary = model.embedding.shape[1], model.lm_head.rows
    slots, drafts = state.progress.running.shape[0], shape.draft_tokens

    def whole(value: int, count: int) -> Tensor:
        return torch.full((count,), value, dtype=torch.int32, device=device)

    longest = state.page_table.shape[1] * state.sizes.page_size

    def scratch(parameters: AttentionParameters | None, rows: int) -> AttentionScratch | None:
        return None if parameters is None else make_scratch(parameters, shape.batch, rows, longest)

    return StepWorkspace(
        shape=shape,
        choice=choice,
        slots=whole(state.scrap_slot, shape.batch),
        residual=buffers.residual.view(shape.all_rows, hidden),
        logits=buffers.logits.view(shape.all_rows, vocabulary),
        sampled=whole(0, shape.all_rows),
        outcome=PassOutcome.make(shape.batch, slots, drafts, device),
        head_window=buffers.head_window,
        head_row=buffers.head_row,
        entry=buffers.entry,
        projected=buffers.projected,
        mixed=buffers.mixed,
        activated=buffers.activated,
        draft_logits=buffers.logits,
        attention_scratch=scratch(_attention_of(model), shape.rows),
        head_scratch=scratch(_head_attention_of(model), 1),
        sampling_scratch=sampling_scratch,
        window_mixture=_mixture_space(model.layers, shape.all_rows),
        head_mixture=_mixture_space([model.head.layer] if model.head else [], shape.batch),
    )


def _mixture_space(layers: Sequence[DeviceLayer], rows: int) -> MixtureSpace | None:
    mlp = next((layer.mlp for layer in layers if isinstance(layer.mlp, MixtureMlp)), None)
    if mlp is None:
        return None
    device = mlp.experts.gate_up.device
    routing = allocate_routing(rows, mlp.spec, device)
    router_rows = mlp.router.blocks.shape[0] * TILE_ROWS
    return MixtureSpace(
        routing,
        routing_scratch(rows, mlp.spec, router_rows, device),
        experts_scratch(rows, routing, mlp.experts, mlp.shared),
    )


def _attention_of(model: DeviceModel) -> AttentionParameters | None:
    mixers = (layer.mixer for layer in model.layers)
    return next((mixer.parameters for mixer in mixers if isinstance(mixer, AttentionMixer)), None)


def _head_attention_of(model: DeviceModel) -> AttentionParameters | None:
    mixer = model.head.layer.mixer if model.head else None
    return mixer.parameters if isinstance(mixer, AttentionMixer) else None
