"""The definition of a device step's attention is the layers' attention, with geometry in tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.kernels.decode_attention.parameters import make_scratch
from draftproof.kernels.decode_attention.reference import decode_attention, decode_attention_selected
from draftproof.kernels.paged_attention.reference import paged_attention
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.rotary import rotate_
from tests.kernels.decode_attention.cases import NAN, Case, Shape, locations, make_case

SHAPES = {
    "tiny": Shape(),
    "ungated, one key head, all of the head rotated": Shape(3, 1, 16, 16, gated=False),
    "group of one": Shape(2, 2, 32, 8),
}


def run(case: Case) -> Tensor:
    rows = case.geometry.batch * case.geometry.rows
    out = torch.full((rows, case.parameters.heads * case.parameters.head_dim), NAN, dtype=case.keys.dtype)
    scratch = make_scratch(case.parameters, case.geometry.batch, case.geometry.rows, 64)
    decode_attention(case.projected, case.parameters, case.keys, case.values, case.geometry, scratch, out=out)
    return out


def by_layers(case: Case, sequence: int) -> tuple[Tensor, Tensor, Tensor]:
    """Output, keys and values of one sequence's rows from the operations of the prefill path, in float32."""
    parameters, geometry = case.parameters, case.geometry
    slot = int(geometry.slots[sequence])
    start = int(geometry.lengths[slot])
    rows = case.projected[sequence * geometry.rows :][: geometry.rows].float()
    heads = rows[:, : parameters.query_width].view(1, geometry.rows, parameters.heads, -1)
    key, value = (
        part.reshape(1, geometry.rows, parameters.key_value_heads, -1)
        for part in rows[:, parameters.query_width :].chunk(2, 1)
    )
    query, gate = heads[..., : parameters.head_dim], heads[..., parameters.head_dim :]
    angles = tuple(table[start : start + geometry.rows, None] for table in (parameters.cos, parameters.sin))
    placed = []
    for part, scale in ((query, parameters.query_norm), (key, parameters.key_norm)):
        normed = OffsetRmsNorm(scale.weight - 1.0, scale.epsilon)(part)
        rotate_(normed, (angles[0], angles[1]))
        placed.append(normed)
    places = locations(geometry.page_table[slot], geometry.page_size)[: start + geometry.rows]
    keys, values = (pool.flatten(0, 1)[places].unsqueeze(0).float() for pool in (case.keys, case.values))
    keys[0, start:], values[0, start:] = placed[1][0], value[0]
    attended = paged_attention(placed[0], keys, values, torch.tensor([[0]]), (start,))
    if parameters.gated:
        attended = attended * gate.sigmoid()
    return attended[0].flatten(1), placed[1][0], value[0]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rows", [1, 3])
def test_it_is_the_layers_attention(shape: Shape, rows: int) -> None:
    case = make_case(shape, [0, 15, 16, 37], rows, dtype=torch.float32)
    out = run(case)
    for sequence in range(case.geometry.batch):
        expected, key, value = by_layers(case, sequence)
        mine = slice(sequence * rows, (sequence + 1) * rows)
        torch.testing.assert_close(out[mine], expected, atol=2e-5, rtol=2e-5)
        slot = int(case.geometry.slots[sequence])
        start = int(case.geometry.lengths[slot])
        places = locations(case.geometry.page_table[slot], 16)[start : start + rows]
        torch.testing.assert_close(case.keys.flatten(0, 1)[places], key, atol=2e-5, rtol=2e-5)
        assert torch.equal(case.values.flatten(0, 1)[places], value)


def test_only_the_windows_places_are_written() -> None:
    case = make_case(Shape(), [5, 30], 2)
    before = case.keys.clone()
    run(case)
    same = (case.keys == before) | (case.keys.isnan() & before.isnan())
    changed = (~same.flatten(2).all(2)).flatten().nonzero().flatten()
    expected = [
        int(locations(case.geometry.page_table[slot], 16)[int(case.geometry.lengths[slot]) + row])
        for slot in case.geometry.slots.tolist()
        for row in range(2)
    ]
    assert changed.tolist() == sorted(expected)


def test_padded_sequences_and_rows_past_the_page_table_harm_nobody() -> None:
    alone = make_case(Shape(), [14], 4, room=16)
    padded = make_case(Shape(), [14], 4, room=16, padded=2)
    padded.projected[:4] = alone.projected
    first, second = run(alone), run(padded)
    # Two rows fit behind position 14; the others are past the table.
    assert torch.equal(first[:2], second[:2])
    assert not first[:2].isnan().any()
    assert torch.equal(alone.keys[1:], padded.keys[1:])


def test_the_selected_row_is_that_row_of_all() -> None:
    case = make_case(Shape(), [3, 20, 0], 4)
    every = run(case).view(3, 4, -1)
    index = torch.tensor([2, 0, 3], dtype=torch.int32)
    again = make_case(Shape(), [3, 20, 0], 4)
    out = torch.full((3, every.shape[-1]), NAN, dtype=torch.bfloat16)
    scratch = make_scratch(case.parameters, 3, 1, 64)
    decode_attention_selected(
        again.projected, again.parameters, again.keys, again.values, again.geometry, index, scratch, out=out
    )
    torch.testing.assert_close(out, every[torch.arange(3), index.long()], atol=1e-2, rtol=1e-2)
    assert torch.equal(again.keys.nan_to_num(), case.keys.nan_to_num())
