"""The model that is measured: made on the device with weights of a real shape, and ready to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from draftproof.architecture.spec import ModelSpec
from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.bench.place import Place
from draftproof.bench.precisions import PrecisionLayout, layout_named
from draftproof.bench.request import AS_MANY_AS_FIT, BenchRequest
from draftproof.bench.shapes import first_layers, load_shape
from draftproof.checkpoint.precision import Precision
from draftproof.device.narrow_head import at_8_bits
from draftproof.device.state import DeviceState
from draftproof.device.weights import DeviceModel, DraftVocabulary, device_model
from draftproof.hardware.memory_plan import MemoryPlan, memory_plan
from draftproof.hardware.roofline import Model
from draftproof.hardware.shape import shape_of
from draftproof.hardware.weights import weigh_precisions
from draftproof.kernels.draft_head.selection import select_rows
from draftproof.models.account import TensorAccount
from draftproof.models.loading import LoadedModel, load_model
from draftproof.models.stored_linear import DenseBackend, LoadTarget
from draftproof.models.synthetic import SyntheticReader, synthetic_tensors
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.state_store import StateSizes
from draftproof.speculation.draft_vocabulary import read_draft_vocabulary

PAGE_SIZE = 16
LAYER_GROUP = 4
"""Three recurrent layers and one with attention, in every release."""
PACKED = LoadTarget(torch.bfloat16, WeightStorage.PACKED, DenseBackend.PACKED_BLOCKS)
"""How weights are kept for a device step."""


@dataclass(frozen=True)
class Subject:
    """A loaded shape.

    Attributes:
        spec: the model, cut to the layers that were asked for.
        layout: how its weights are stored.
        model: what steps read.
        state: of all sequences.
        sizes: of its weights and its shape, for the roofline.
        plan: of its memory.
    """

    spec: ModelSpec
    layout: PrecisionLayout
    model: DeviceModel
    state: DeviceState
    sizes: Model
    plan: MemoryPlan


def _layers_of(request: BenchRequest, layout: PrecisionLayout, sizes: StateSizes, free: int) -> ModelSpec:
    """The shape, cut to the layers that were asked for; "as many as fit" is whole groups of a release's four
    kinds of layers, at least one group."""
    spec = load_shape(request.shape)
    if request.layers is None:
        return spec
    if request.layers != AS_MANY_AS_FIT:
        return first_layers(spec, request.layers)
    counts = range(len(spec.layers), LAYER_GROUP - 1, -LAYER_GROUP)
    slices = (first_layers(spec, count) for count in counts)
    fitting = (each for each in slices if _plan(each, layout, sizes).total <= free)
    return next(fitting, first_layers(spec, LAYER_GROUP))


def _plan(spec: ModelSpec, layout: PrecisionLayout, sizes: StateSizes) -> MemoryPlan:
    weights = weigh_precisions(spec, layout.groups)
    return memory_plan(spec, weights, sizes.slots, sizes.max_positions, sizes.window_rows)


def load_subject(request: BenchRequest, place: Place) -> Subject:
    """Make the weights and the state; refused before anything is allocated when it does not fit.

    Raises:
        EnvironmentProblem: too little memory, with the budget by group.
    """
    layout = layout_named(request.precision)
    sizes = state_sizes(request)
    device, free = place.device, place.free_bytes()
    spec = _layers_of(request, layout, sizes, free)
    plan = _plan(spec, layout, sizes)
    plan.require(free, f"{request.shape} in {request.precision}", REMEDY)
    loaded = load_synthetic(spec, layout, sizes.max_positions, device, request.seed)
    with torch.inference_mode():
        drafts = _draft_vocabulary(loaded, request)
        model = device_model(loaded.target, loaded.head if request.most_drafts else None, drafts)
        if request.draft_8bit and model.head is not None:
            model = replace(model, head=at_8_bits(model.head))
        state = DeviceState.allocate(spec, sizes, torch.bfloat16, device)
    groups = {**layout.groups, **(HEAD_AT_8_BITS if request.draft_8bit else {})}
    read = Model(weigh_precisions(spec, groups), shape_of(spec))
    return Subject(spec, layout, model, state, read, plan)


def load_synthetic(
    spec: ModelSpec, layout: PrecisionLayout, positions: int, device: torch.device, seed: int = 0
) -> LoadedModel:
    """A model of this shape and precision with weights that mean nothing, packed for device steps."""
    entries = synthetic_tensors(spec, layout.expert_layouts(spec), layout.storage_of)
    account = TensorAccount(SyntheticReader(seed), entries, device)
    with torch.inference_mode():
        return load_model(spec, account, PACKED, positions, device, with_head=True)


def state_sizes(request: BenchRequest) -> StateSizes:
    """Slots and pages for the largest batch, at the longest it gets while it is measured."""
    rows = request.most_drafts + 1
    positions = request.context + (request.steps + MARGIN_STEPS) * rows
    pages = -(-positions // PAGE_SIZE)
    slots = max(request.batches)
    return StateSizes(slots, slots * pages + 1, PAGE_SIZE, pages * PAGE_SIZE, rows)


HEAD_AT_8_BITS = {
    (ModelPart.MTP, group): Precision.FP8_TENSOR
    for group in (
        TensorGroup.MTP,
        TensorGroup.ATTENTION,
        TensorGroup.ROUTED_EXPERT,
        TensorGroup.SHARED_EXPERT,
        TensorGroup.DENSE_MLP,
    )
}
"""What `--draft-8bit` makes of the head, for the roofline: a byte a weight."""

REMEDY = "Fewer layers (--layers), a smaller --batch or --context, or a narrower --precision."

MARGIN_STEPS = 8
"""Steps beside the measured ones: warming up, and the one in flight."""


def _draft_vocabulary(loaded: LoadedModel, request: BenchRequest) -> DraftVocabulary | None:
    """Rows of the output head: those of a file, or the first ones, since a shape has no tokenizer that could
    say which tokens are frequent."""
    head = device_model(loaded.target, None).lm_head
    if request.draft_file is not None:
        ids: Sequence[int] = read_draft_vocabulary(request.draft_file, head.rows)
    elif request.draft_rows is not None:
        ids = range(request.draft_rows)
    else:
        return None
    token_ids = torch.tensor(ids, dtype=torch.int32, device=head.blocks.device)
    chosen = select_rows(head, token_ids)
    return DraftVocabulary(chosen, token_ids)
