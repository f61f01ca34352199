"""Windows of attention rows at any place of any pages; what nobody may read is NaN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kernels.decode_attention.parameters import AttentionParameters
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.step_geometry import StepGeometry

NAN = float("nan")


@dataclass(frozen=True)
class Shape:
    """Heads and widths of a layer."""

    heads: int = 4
    key_value_heads: int = 2
    head_dim: int = 64
    rotated: int = 16
    gated: bool = True


@dataclass(frozen=True)
class Case:
    """One layer, its pages with a random past, and one window."""

    parameters: AttentionParameters
    keys: Tensor
    values: Tensor
    geometry: StepGeometry
    projected: Tensor


def make_parameters(shape: Shape, generator: torch.Generator, positions: int) -> AttentionParameters:
    device = generator.device

    def norm() -> NormScale:
        offset = torch.randn(shape.head_dim, generator=generator, device=device) * 0.1
        return NormScale(1.0 + offset, 1e-6)

    frequencies = 10_000.0 ** -(
        torch.arange(0, shape.rotated, 2, dtype=torch.float32, device=device) / shape.rotated
    )
    angles = torch.outer(torch.arange(positions, dtype=torch.float32, device=device), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return AttentionParameters(
        shape.heads,
        shape.key_value_heads,
        shape.head_dim,
        shape.gated,
        norm(),
        norm(),
        torch.cat((cos, cos), 1),
        torch.cat((-sin, sin), 1),
    )


def make_case(
    shape: Shape,
    lengths: list[int],
    rows: int,
    *,
    page_size: int = 16,
    room: int | None = None,
    padded: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
    device: str = "cpu",
) -> Case:
    """Sequences with `lengths` committed positions, in shuffled slots and pages.

    Slot 0 and page 0 are scrap; `padded` more sequences of the bucket point there. Pools are NaN wherever no
    sequence has a committed position, the scrap page included; `room` is the page table's reach in positions.
    """
    generator = torch.Generator(device).manual_seed(seed)
    live, batch = len(lengths), len(lengths) + padded
    reach = room if room is not None else max(lengths) + rows
    pages_each = -(-reach // page_size)
    slots = torch.randperm(live + 1, generator=generator, device=device) + 1
    slots = torch.cat((slots[:live], torch.zeros(padded, dtype=slots.dtype, device=device)))
    table = torch.zeros(live + 2, pages_each, dtype=torch.int32, device=device)
    numbers = torch.randperm(live * pages_each, generator=generator, device=device) + 1
    table[slots[:live]] = numbers.view(live, pages_each).int()
    all_lengths = torch.zeros(live + 2, dtype=torch.int32, device=device)
    all_lengths[slots[:live]] = torch.tensor(lengths, dtype=torch.int32, device=device)

    parameters = make_parameters(shape, generator, reach + rows)
    pool = (1 + live * pages_each, page_size, shape.key_value_heads, shape.head_dim)
    keys, values = (torch.full(pool, NAN, dtype=dtype, device=device) for _ in range(2))
    for slot, length in zip(slots[:live].tolist(), lengths, strict=True):
        for target in (keys, values):
            past = torch.randn(length, *pool[2:], generator=generator, device=device)
            target.view(-1, *pool[2:])[locations(table[slot], page_size)[:length]] = past.to(dtype)
    zeros = torch.zeros(live + 2, dtype=torch.int32, device=device)
    geometry = StepGeometry(rows, slots.int(), all_lengths, zeros, zeros, table, page_size)
    width = parameters.query_width + 2 * parameters.key_width
    # A row stride that is wider than the row, as that of a matrix padded to whole tiles.
    wide = torch.full((batch * rows, width + 16), NAN, dtype=dtype, device=device)
    wide[:, :width] = torch.randn(batch * rows, width, generator=generator, device=device).to(dtype)
    return Case(parameters, keys, values, geometry, wide[:, :width])


def locations(pages: Tensor, page_size: int) -> Tensor:
    """Flat places of all positions of a sequence."""
    offsets = torch.arange(page_size, device=pages.device)
    return (pages.long().unsqueeze(1) * page_size + offsets).flatten()
