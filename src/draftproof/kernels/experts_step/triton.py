"""Launches of the experts' Triton kernels, for every GPU and any number of rows of a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import triton_kernels as kernels
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert, as_experts
from draftproof.kernels.experts_step.prompt import in_parts
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import CHUNK_COLUMNS, PackedExperts, WeightFormat
from draftproof.kernels.routing.routing import FewRowsRouting, Routing

MANY, FEW, ALL = 0, 1, 2
FORMATS = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 2}
PAIRS = 16


@dataclass(frozen=True)
class Tile:
    """How a product is cut up: weight rows and inputs of a step of a program, its warps, loads in flight."""

    rows: int
    inputs: int
    warps: int
    stages: int


GATE_UP = {
    WeightFormat.BF16: Tile(64, 256, 4, 3),
    WeightFormat.FP8: Tile(64, 128, 4, 5),
    WeightFormat.NVFP4: Tile(128, 128, 4, 3),
}
"""The fastest of six to nine on an H200, for 16, 64 and 256 rows of 256 experts of 512 x 2048."""
DOWN = {
    WeightFormat.BF16: Tile(64, 128, 4, 4),
    WeightFormat.FP8: Tile(64, 128, 4, 5),
    WeightFormat.NVFP4: Tile(128, 128, 4, 3),
}


def supports_experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> str | None:
    """Why this call cannot run here, or None."""
    formats = [experts.format] + ([] if shared is None else [shared.gate_up.format, shared.down.format])
    unknown = [each.value for each in formats if each not in FORMATS]
    return f"experts in {unknown[0]}" if unknown else None


def supports_experts_of_prompt(
    rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> str | None:
    """Why this call cannot run here, or None."""
    if rows.dtype is not torch.bfloat16:
        return f"rows in {rows.dtype}"
    return None if experts.format in FORMATS else f"experts in {experts.format.value}"


def experts_of_prompt(
    rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> Tensor:
    """As in the reference."""
    return in_parts(add_experts, rows, chosen, weights, spec, experts)


def experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> None:
    """Add each row's experts to the residual stream; arguments as in the reference."""
    add_experts(residual, residual, norm, experts, shared, routing, scratch)


def add_experts(
    source: Tensor,
    residual: Tensor,
    norm: NormScale | None,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
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
    rows = residual.shape[0]
    prepared, factor = scratch.prepared[:rows], scratch.factor[:rows]
    outputs = None
    if shared is not None:
        single, outputs = as_experts(shared), scratch.shared_outputs[:rows]
        prepare(source, norm, single.format, prepared, factor)
        gate_up(prepared, factor, single, None, scratch.shared_activations[:rows], GATE_UP[single.format])
        down(scratch.shared_activations, single, None, outputs, rows, DOWN[single.format])
    if shared is None or shared.gate_up.format is not experts.format:
        prepare(source, norm, experts.format, prepared, factor)
    gate_up(prepared, factor, experts, routing, scratch.activations, GATE_UP[experts.format])
    down(scratch.activations, experts, routing, scratch.outputs, rows, DOWN[experts.format])
    combine(residual, scratch.outputs, outputs, routing)


def prepare(
    residual: Tensor, norm: NormScale | None, weight_format: WeightFormat, prepared: Tensor, factor: Tensor
) -> None:
    """Rows times the norm's weight as one format's products read them, and 1 / rms of each.

    Args:
        residual: [R, hidden] bfloat16.
        norm: weight and epsilon.
        weight_format: of the experts.
        prepared: [R, hidden padded to whole chunks] bfloat16, written.
        factor: [R] float32, written.
    """
    rows, hidden = residual.shape
    width = prepared.shape[1]
    weight, epsilon = (None, 0.0) if norm is None else (norm.weight, norm.epsilon)
    kernels.prepare_rows[(rows,)](
        residual, weight, prepared, factor, epsilon, residual.stride(0), hidden, width,
        min(triton.next_power_of_2(width), 2048), FORMATS[weight_format], num_warps=8,
    )  # fmt: skip


def gate_up(
    prepared: Tensor,
    factor: Tensor,
    experts: PackedExperts,
    routing: Routing | None,
    hidden: Tensor,
    tile: Tile,
) -> None:
    """Activations of all pairs.

    Args:
        prepared: of `prepare`, in the format of the experts.
        factor: [R] float32.
        experts: with `routing` None one expert, whose pairs are all rows.
        routing: of the rows.
        hidden: [pairs, intermediate padded to whole chunks] bfloat16, written.
        tile: how the product is cut up.
    """
    rows = prepared.shape[0]
    listed, offsets, pair_rows, blocks, kind = _list(routing, rows)
    tiles, chunks = experts.gate_up.shape[1:3]
    width = experts.down.shape[2] * CHUNK_COLUMNS[experts.format]
    grid = triton.cdiv(width, tile.rows // 2), blocks
    scales = _block_scale(experts.gate_up_block_scale)
    kernels.gate_up[grid](
        prepared, factor, experts.gate_up, experts.gate_up_scale, experts.gate_up_block_scale, listed,
        offsets, pair_rows, hidden, rows, prepared.shape[1], hidden.shape[1], experts.intermediate, tiles,
        chunks, CHUNK_COLUMNS[experts.format], *scales, kind, tile.rows, tile.inputs, FORMATS[experts.format],
        width, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def down(
    hidden: Tensor, experts: PackedExperts, routing: Routing | None, out: Tensor, rows: int, tile: Tile
) -> None:
    """Outputs of all pairs, not yet weighted.

    Args:
        hidden: of `gate_up`.
        experts: as there.
        routing: as there.
        out: [pairs, hidden size] float32, written.
        rows: R.
        tile: how the product is cut up.
    """
    listed, offsets, _, blocks, kind = _list(routing, rows)
    tiles, chunks = experts.down.shape[1:3]
    scales = _block_scale(experts.down_block_scale)
    kernels.down[(triton.cdiv(experts.hidden, tile.rows), blocks)](
        hidden, experts.down, experts.down_scale, experts.down_block_scale, listed, offsets, out, rows,
        hidden.shape[1], experts.hidden, tiles, chunks, CHUNK_COLUMNS[experts.format], *scales, kind,
        tile.rows, tile.inputs, FORMATS[experts.format], num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def combine(residual: Tensor, routed: Tensor, shared: Tensor | None, routing: Routing) -> None:
    """Add each row's weighted experts, and its shared expert, to the residual stream, in place."""
    rows, width = residual.shape
    if isinstance(routing, FewRowsRouting):
        listed, weights, places, top, kind = routing.distinct, routing.row_weights, None, 0, FEW
    else:
        listed, weights, places = None, routing.pair_weights, routing.pair_places
        top, kind = routing.pair_places.shape[1], MANY
    kernels.combine[(rows, triton.cdiv(width, 512))](
        residual, routed, shared, listed, weights, places, routing.shared_weight, residual.stride(0), width,
        top, kind, 512, num_warps=4,
    )  # fmt: skip


def _list(routing: Routing | None, rows: int) -> tuple[Tensor | None, Tensor | None, Tensor | None, int, int]:
    """Where the kernels find their pairs, and how many blocks of them there can be."""
    if routing is None:
        return None, None, None, triton.cdiv(rows, PAIRS), ALL
    if isinstance(routing, FewRowsRouting):
        return routing.distinct, None, None, routing.distinct.shape[0] - 1, FEW
    return routing.blocks, routing.offsets, routing.pair_rows, routing.blocks.shape[0] - 1, MANY


def _block_scale(scale: Tensor | None) -> tuple[int, int]:
    return (0, 0) if scale is None else (scale.shape[-2], scale.shape[-1])
