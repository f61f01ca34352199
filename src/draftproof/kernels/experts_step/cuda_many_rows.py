"""Experts of many rows in CUDA, for GPUs from SM90 on: sorted pairs past streams of packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert
from draftproof.kernels.experts_step.triton import as_experts
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
SORTED_PAIRS, ALL_ROWS = 0, 2
COMBINE_THREADS, COMBINE_COLUMNS = 128, 4


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


GATE_UP = {
    WeightFormat.BF16: Plan(8, 4, 2, 2, 2),
    WeightFormat.FP8: Plan(8, 4, 2, 2, 2),
    WeightFormat.NVFP4: Plan(8, 4, 2, 2, 2),
}
DOWN = {
    WeightFormat.BF16: Plan(8, 1, 2, 4, 2),
    WeightFormat.FP8: Plan(8, 1, 2, 4, 2),
    WeightFormat.NVFP4: Plan(8, 1, 2, 4, 2),
}


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


def experts_many_rows(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: ManyRowsRouting,
    scratch: ExpertsScratch,
) -> None:
    """Add each row's experts to the residual stream; arguments as in the reference."""
    rows = residual.shape[0]
    outputs = None
    if shared is not None:
        single, activations = as_experts(shared), scratch.shared_activations
        outputs = scratch.shared_outputs[:rows]
        multiply(residual, norm, first_of(single), None, activations, rows, GATE_UP[single.format])
        multiply(activations, None, second_of(single), None, outputs, rows, DOWN[single.format])
    plans = GATE_UP[experts.format], DOWN[experts.format]
    multiply(residual, norm, first_of(experts), routing, scratch.activations, rows, plans[0])
    multiply(scratch.activations, None, second_of(experts), routing, scratch.outputs, rows, plans[1])
    combine(residual, scratch.outputs, outputs, routing)


def multiply(
    source: Tensor,
    norm: NormScale | None,
    product: Product,
    routing: ManyRowsRouting | None,
    out: Tensor,
    rows: int,
    plan: Plan,
) -> None:
    """One matrix of every expert on its pairs.

    Args:
        source: [rows, hidden] bfloat16 for gate and up, else [pairs, width] bfloat16; rows may have a stride.
        norm: before gate and up.
        product: the matrices.
        routing: None for one expert on all rows.
        out: [pairs, width] bfloat16 activations, or [pairs, hidden] float32.
        rows: of the step.
        plan: how it is spread.
    """
    kernel = kernel_of(product, plan, routing is not None, source.device)
    scale_shape = (0, 0) if product.block_scale is None else product.block_scale.shape[-2:]
    block_list, offsets, pair_rows = (
        (None, None, None) if routing is None else (routing.blocks, routing.offsets, routing.pair_rows)
    )
    arguments = (
        source, None if norm is None else norm.weight, product.blocks, product.row_scale, product.block_scale,
        block_list, offsets, pair_rows, out, rows, source.stride(0), out.stride(0), *scale_shape,
        0.0 if norm is None else norm.epsilon,
    )  # fmt: skip
    processors = torch.cuda.get_device_properties(source.device).multi_processor_count
    kernel.launch((processors * plan.resident,), plan.warps * 32, arguments, shared_bytes(product, plan))


def shared_bytes(product: Product, plan: Plan) -> int:
    """Dynamic shared memory: activations of a block of pairs, and the warps' rings."""
    stage = plan.stage_blocks * BLOCK_BYTES[product.weight_format]
    return product.inputs * BLOCK_PAIRS * 2 + plan.warps * plan.stages * stage


def kernel_of(product: Product, plan: Plan, sorted_pairs: bool, device: torch.device) -> Kernel:
    """The kernel for one shape and plan."""
    return load_kernel(
        SOURCE,
        "experts_product",
        device,
        MODE=MODES[product.weight_format] if product.block_scale is None else FP8_BLOCKS,
        GATED=int(product.gated),
        INPUTS=product.inputs,
        WIDTH=product.width,
        TILES=product.blocks.shape[1],
        WARPS=plan.warps,
        GROUP=plan.group,
        STAGE_BLOCKS=plan.stage_blocks,
        STAGES=plan.stages,
        RESIDENT=plan.resident,
        LIST=SORTED_PAIRS if sorted_pairs else ALL_ROWS,
    )


def combine(residual: Tensor, outputs: Tensor, shared: Tensor | None, routing: ManyRowsRouting) -> None:
    """Add each row's weighted experts, and its shared expert, to the residual stream, in place."""
    rows, width = residual.shape
    kernel = load_kernel(SOURCE, "experts_combine", residual.device, **COMBINE_ONLY)
    arguments = (
        residual, outputs, shared, routing.pair_weights, routing.pair_places, routing.shared_weight, width,
        residual.stride(0), routing.pair_places.shape[1],
    )  # fmt: skip
    kernel.launch((rows, -(-width // (COMBINE_THREADS * COMBINE_COLUMNS))), COMBINE_THREADS, arguments)


COMBINE_ONLY = {
    "MODE": 0, "GATED": 0, "INPUTS": 512, "WIDTH": 512, "TILES": 16, "WARPS": 8, "GROUP": 1,
    "STAGE_BLOCKS": 2, "STAGES": 2, "RESIDENT": 1, "LIST": 0,
}  # fmt: skip
"""The sum does not depend on them; they are those of some product in the same file."""
