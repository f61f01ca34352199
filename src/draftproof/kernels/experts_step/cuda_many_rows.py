"""Experts of many rows in CUDA, for GPUs from SM90 on: sorted pairs past streams of packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel, multiprocessors
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert, as_experts
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import (
    BLOCK_BYTES,
    CHUNK_COLUMNS,
    PackedExperts,
    WeightFormat,
)
from draftproof.kernels.routing.routing import BLOCK_PAIRS, ManyRowsRouting

SOURCE = Path(__file__).parent / "many_rows.cu"
MODES = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 2}
FP8_BLOCKS = 3
COMBINE_THREADS, COMBINE_COLUMNS = 128, 4
MOST_SEGMENTS = 16
"""Blocks of pairs in the range of a thread block."""
BLOCKS_OF_SCALE = 2
"""FP8 blocks that share a block scale."""
PART_BYTES = 16 * (BLOCK_PAIRS + 1) * 4
"""Static shared memory for each warp's part of a tile of gate and up."""
BLOCK_RESERVE = 3072
"""Shared memory of a thread block for barriers and lists, and what the hardware keeps."""
SHARED_MEMORY_BYTES = 233472
"""Of a multiprocessor, on compute capability 9.0 and 10.0."""


@dataclass(frozen=True)
class Plan:
    """How a product is spread over warps and shared memory.

    Attributes:
        warps: of a thread block.
        group: warps that share a tile, each with its part of the inputs.
        stage_blocks: weight blocks of one copy.
        stages: copies in flight of each warp.
        resident: thread blocks of one multiprocessor.
    """

    warps: int
    group: int
    stage_blocks: int
    stages: int
    resident: int


WIDE = (Plan(16, 4, 4, 2, 1), Plan(16, 4, 2, 2, 1), Plan(16, 4, 1, 4, 1))
NARROW = (Plan(8, 4, 2, 2, 2), Plan(8, 2, 1, 2, 1), Plan(8, 1, 1, 2, 1))
GATE_UP = WIDE + NARROW
"""In order of preference: the first one that a shape divides into is taken. Measured on an H200 with 256
experts of 512 x 2048 and 16, 64 and 256 rows in BF16 and FP8: the first is the fastest of five to nine, or
within 1 %."""
GATE_UP_NVFP4 = (Plan(16, 1, 4, 2, 1), Plan(16, 1, 2, 2, 1), *GATE_UP)
"""The same for NVFP4, whose decoding takes the longest: warps that meet for every tile wait for the slowest
(109 us at 64 rows by four warps a tile, 95 by two, 87 by one; 179, 170 and 169 at 256 rows)."""
DOWN = (Plan(8, 1, 4, 2, 2), Plan(8, 1, 2, 4, 2), Plan(8, 1, 1, 4, 1))


@dataclass(frozen=True)
class Product:
    """One of the two matrices of experts, as the kernel takes it.

    Attributes:
        weight_format: of the blocks.
        blocks: uint8 [experts, tiles, chunks, BLOCK_BYTES].
        row_scale: float32 [experts, tiles * 16] or None.
        block_scale: float32 [experts, rows, columns] or None.
        width: real inputs.
        gated: gate and up, with the norm before them.
    """

    weight_format: WeightFormat
    blocks: Tensor
    row_scale: Tensor | None
    block_scale: Tensor | None
    width: int
    gated: bool

    @property
    def inputs(self) -> int:
        """Padded inputs."""
        return self.blocks.shape[2] * CHUNK_COLUMNS[self.weight_format]

    @property
    def mode(self) -> int:
        """As the kernel names formats."""
        return MODES[self.weight_format] if self.block_scale is None else FP8_BLOCKS

    def goes_with(self, other: Product) -> bool:
        """Whether one launch, by this one's plan, can multiply both; formats may differ."""
        shapes = [(each.inputs, each.blocks.shape[1], each.width, each.gated) for each in (self, other)]
        plan = self.plan()
        return shapes[0] == shapes[1] and plan is not None and other.fits(plan)

    def plan(self) -> Plan | None:
        """How it is multiplied; None when no plan fits its shape."""
        return next((plan for plan in self._plans if self.fits(plan)), None)

    @property
    def _plans(self) -> tuple[Plan, ...]:
        if not self.gated:
            return DOWN
        return GATE_UP_NVFP4 if self.weight_format is WeightFormat.NVFP4 else GATE_UP

    def fits(self, plan: Plan) -> bool:
        """Whether a plan divides its shape and has the memory."""
        part, rest = divmod(self.blocks.shape[2], plan.group)
        if rest or part % plan.stage_blocks or (self.block_scale is not None and part % BLOCKS_OF_SCALE):
            return False
        fixed = PART_BYTES * (plan.warps if self.gated else 1) + BLOCK_RESERVE
        return plan.resident * (shared_bytes(plan, self) + fixed) <= SHARED_MEMORY_BYTES


def first_of(experts: PackedExperts) -> Product:
    """Gate and up."""
    return Product(
        experts.format,
        experts.gate_up,
        experts.gate_up_scale,
        experts.gate_up_block_scale,
        experts.hidden,
        gated=True,
    )


def second_of(experts: PackedExperts) -> Product:
    """Down."""
    return Product(
        experts.format,
        experts.down,
        experts.down_scale,
        experts.down_block_scale,
        experts.intermediate,
        gated=False,
    )


def unsupported(source: Tensor, experts: PackedExperts, shared: SharedExpert | None) -> str | None:
    """Why these experts cannot run here on rows like `source`, or None."""
    return missing(source.device) or unsupported_shape(experts, shared)


def unsupported_shape(experts: PackedExperts, shared: SharedExpert | None) -> str | None:
    """The part of `unsupported` that does not ask the GPU."""
    for each in (experts,) if shared is None else (experts, as_experts(shared)):
        if each.format not in MODES:
            return f"experts in {each.format.value}"
        if shared is not None and shared.gate_up.format is not shared.down.format:
            return f"shared expert in {shared.gate_up.format.value} and {shared.down.format.value}"
        if each.hidden % 16 or each.intermediate % 8:
            return f"hidden width {each.hidden}, intermediate width {each.intermediate}"
        if first_of(each).plan() is None or second_of(each).plan() is None:
            return f"no plan for {each.format.value} experts of {each.intermediate} x {each.hidden}"
    return None


def add_experts(
    source: Tensor,
    residual: Tensor,
    norm: NormScale | None,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: ManyRowsRouting,
    scratch: ExpertsScratch,
) -> None:
    """Add the experts of the rows of `source` to `residual`.

    Args:
        source: [rows, hidden] bfloat16.
        residual: the shape and dtype of `source`; updated in place, may be `source`.
        norm: of the rows of `source`; None when they have been normed.
        experts: as in the reference, like all that follow.
        shared: the expert of every row.
        routing: of the rows.
        scratch: room.
    """
    rows, outputs = residual.shape[0], None
    first, second = first_of(experts), second_of(experts)
    up = Side(first, source, scratch.activations)
    down = Side(second, scratch.activations, scratch.outputs)
    if shared is None:
        multiply(up, None, norm, routing, rows)
        multiply(down, None, None, routing, rows)
    else:
        single, outputs = as_experts(shared), scratch.shared_outputs[:rows]
        shared_up = Side(first_of(single), source, scratch.shared_activations)
        shared_down = Side(second_of(single), scratch.shared_activations, outputs)
        for routed, other, before in ((up, shared_up, norm), (down, shared_down, None)):
            if routed.product.goes_with(other.product):
                multiply(routed, other, before, routing, rows)
            else:
                multiply(None, other, before, routing, rows)
                multiply(routed, None, before, routing, rows)
    combine(residual, scratch.outputs, outputs, routing)


@dataclass(frozen=True)
class Side:
    """What one kind of experts, the routed ones or the shared one, reads and writes.

    Attributes:
        product: the matrices.
        source: [rows, hidden] bfloat16 for gate and up, else activations [pairs, width]; rows may be strided.
        out: activations [pairs, width] bfloat16, or [pairs, hidden] float32.
    """

    product: Product
    source: Tensor
    out: Tensor

    def arguments(self) -> tuple[Tensor | int | None, ...]:
        """As the kernel takes them."""
        product = self.product
        tensors = self.source, product.blocks, product.row_scale, product.block_scale, self.out
        return *tensors, self.source.stride(0), self.out.stride(0)


ABSENT = (None, None, None, None, None, 0, 0)


def multiply(
    routed: Side | None,
    shared: Side | None,
    norm: NormScale | None,
    routing: ManyRowsRouting,
    rows: int,
    plan: Plan | None = None,
) -> None:
    """One matrix of every expert on its pairs.

    Args:
        routed: the routed experts, on the pairs of `routing`; None leaves them out.
        shared: an expert on all rows that goes with them; None leaves it out.
        norm: before gate and up; None for none.
        routing: of the rows.
        rows: of the step.
        plan: how it is spread; None for the product's own.
    """
    sides = [side for side in (routed, shared) if side is not None]
    products, device = [side.product for side in sides], sides[0].source.device
    plan = plan or products[0].plan()
    assert plan is not None, "unsupported() says so"
    scaled = [product.block_scale for product in products if product.block_scale is not None]
    scale_shape = scaled[0].shape[-2:] if scaled else (0, 0)
    arguments = (
        *(ABSENT if routed is None else routed.arguments()),
        *(ABSENT if shared is None else shared.arguments()),
        *(None if norm is None else norm.weight, routing.blocks, routing.offsets, routing.pair_rows),
        *(len(routing.blocks), len(routing.offsets) - 1, rows),
        *(*scale_shape, 0.0 if norm is None else norm.epsilon),
    )
    grid = multiprocessors(device) * plan.resident
    most = len(routing.blocks) - 1 + -(-rows // BLOCK_PAIRS)
    assert most / grid + 2 <= MOST_SEGMENTS, f"{most} blocks of pairs on {grid} thread blocks"
    kernel = kernel_of(plan, routed.product if routed else None, shared.product if shared else None, device)
    kernel.launch((grid,), plan.warps * 32, arguments, shared_bytes(plan, *products))


def shared_bytes(plan: Plan, *products: Product) -> int:
    """Dynamic shared memory: activations of a block of pairs, and the warps' rings."""
    stage = plan.stage_blocks * max(BLOCK_BYTES[product.weight_format] for product in products)
    return products[0].inputs * BLOCK_PAIRS * 2 + plan.warps * plan.stages * stage


def kernel_of(plan: Plan, routed: Product | None, shared: Product | None, device: torch.device) -> Kernel:
    """The kernel for one plan and shape, and for one kind of experts or both."""
    product, other = routed or shared, shared or routed
    assert product is not None
    assert other is not None
    return load_kernel(
        SOURCE,
        "experts_product",
        device,
        MODE=product.mode,
        SHARED_MODE=other.mode,
        GATED=int(product.gated),
        INPUTS=product.inputs,
        WIDTH=product.width,
        TILES=product.blocks.shape[1],
        WARPS=plan.warps,
        GROUP=plan.group,
        STAGE_BLOCKS=plan.stage_blocks,
        STAGES=plan.stages,
        RESIDENT=plan.resident,
        ROUTED=int(routed is not None),
        SHARED=int(shared is not None),
        TOP=1,
    )


def combine(residual: Tensor, outputs: Tensor, shared: Tensor | None, routing: ManyRowsRouting) -> None:
    """Add each row's weighted experts, and its shared expert, to the residual stream, in place."""
    rows, width = residual.shape
    top = routing.pair_places.shape[1]
    kernel = load_kernel(SOURCE, "experts_combine", residual.device, **COMBINE_ONLY, TOP=top)
    arguments = (
        *(residual, outputs, shared, routing.pair_weights, routing.pair_places, routing.shared_weight),
        *(width, residual.stride(0)),
    )
    kernel.launch((rows, -(-width // (COMBINE_THREADS * COMBINE_COLUMNS))), COMBINE_THREADS, arguments)


COMBINE_ONLY = {
    "MODE": 0, "SHARED_MODE": 0, "GATED": 0, "INPUTS": 512, "WIDTH": 512, "TILES": 16, "WARPS": 8, "GROUP": 1,
    "STAGE_BLOCKS": 2, "STAGES": 2, "RESIDENT": 1, "ROUTED": 1, "SHARED": 0,
}  # fmt: skip
"""The sum does not depend on them; they are those of some product in the same file."""
