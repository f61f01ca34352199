"""Paged attention against torch's own attention over plain keys and values."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.paged_attention import fused, host
from draftproof.kernels.paged_attention.reference import paged_attention, write_pages

PAGES, PAGE_SIZE, KEY_VALUE_HEADS, HEAD_DIM = 24, 4, 2, 8
NAN = float("nan")


def pools(fill: float = NAN) -> tuple[Tensor, Tensor]:
    shape = (PAGES, PAGE_SIZE, KEY_VALUE_HEADS, HEAD_DIM)
    return torch.full(shape, fill), torch.full(shape, fill)


def locations_of(table: Tensor, positions: Tensor) -> Tensor:
    """Flat locations of [batch, rows] positions, worked out one by one."""
    flat = [
        int(table[sequence, int(position) // PAGE_SIZE]) * PAGE_SIZE + int(position) % PAGE_SIZE
        for sequence, row in enumerate(positions)
        for position in row
    ]
    return torch.tensor(flat)


def expected_attention(query: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """One sequence: query [rows, heads, dim] over keys and values [start + rows, key_value_heads, dim]."""
    rows, context = query.shape[0], start + query.shape[0]
    allowed = torch.arange(context) <= torch.arange(start, context).unsqueeze(1)
    assert allowed.shape == (rows, context)
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1),
        keys.transpose(0, 1),
        values.transpose(0, 1),
        attn_mask=allowed,
        enable_gqa=True,
    )
    return attended.transpose(0, 1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_pages_any_starts_any_rows(data: st.DataObject) -> None:
    """Everything outside the sequences' own positions is NaN, so reading a wrong place cannot pass."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999), label="seed"))
    batch = data.draw(st.integers(1, 3), label="batch")
    rows = data.draw(st.integers(1, 6), label="rows")
    group = data.draw(st.sampled_from([1, 3]), label="query heads per key head")
    starts = tuple(data.draw(st.lists(st.integers(0, 22), min_size=batch, max_size=batch), label="starts"))
    consecutive = data.draw(st.booleans(), label="consecutive pages")
    numbers = torch.arange(1, 1 + 7 * batch)
    table = (
        numbers if consecutive else torch.randperm(PAGES - 1, generator=generator)[: 7 * batch] + 1
    ).view(batch, 7)

    keys, values = pools()
    plain = []
    for sequence, start in enumerate(starts):
        key, value = (
            torch.randn(start + rows, KEY_VALUE_HEADS, HEAD_DIM, generator=generator) for _ in range(2)
        )
        places = locations_of(table[sequence : sequence + 1], torch.arange(start + rows).unsqueeze(0))
        write_pages(keys, key.unsqueeze(0), places)
        write_pages(values, value.unsqueeze(0), places)
        plain.append((key, value))
    query = torch.randn(batch, rows, KEY_VALUE_HEADS * group, HEAD_DIM, generator=generator)

    attended = paged_attention(query, keys, values, table, starts)
    together = fused.paged_attention(query, keys, values, table, starts)
    torch.testing.assert_close(together, attended, atol=1e-5, rtol=1e-5)
    for sequence, (key, value) in enumerate(plain):
        expected = expected_attention(query[sequence], key, value, starts[sequence])
        torch.testing.assert_close(attended[sequence], expected, atol=1e-5, rtol=1e-5)
        if consecutive:
            one = query[sequence : sequence + 1]
            origin = int(table[sequence, 0]) * PAGE_SIZE
            alone = host.paged_attention(one, keys, values, origin, starts[sequence])
            torch.testing.assert_close(alone[0], expected, atol=1e-5, rtol=1e-5)


def test_a_row_does_not_see_the_rows_after_it() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.tensor([[3, 1, 2]])
    keys, values = pools(0.0)
    keys.copy_(torch.randn(keys.shape, generator=generator))
    values.copy_(torch.randn(values.shape, generator=generator))
    query = torch.randn(1, 4, 6, HEAD_DIM, generator=generator)
    before = paged_attention(query, keys, values, table, (3,))
    for row in range(3):
        later = locations_of(table, torch.arange(3 + row + 1, 7).unsqueeze(0))
        keys.view(-1, KEY_VALUE_HEADS, HEAD_DIM)[later] = 50.0
        values.view(-1, KEY_VALUE_HEADS, HEAD_DIM)[later] = -50.0
        after = paged_attention(query, keys, values, table, (3,))
        torch.testing.assert_close(after[:, : row + 1], before[:, : row + 1], atol=1e-6, rtol=0)
        keys.copy_(torch.randn(keys.shape, generator=generator))
        values.copy_(torch.randn(values.shape, generator=generator))
        before = paged_attention(query, keys, values, table, (3,))


def test_writing_touches_the_named_places_only() -> None:
    keys, _ = pools(7.0)
    rows = torch.arange(2 * 3 * KEY_VALUE_HEADS * HEAD_DIM, dtype=torch.float32).view(
        2, 3, KEY_VALUE_HEADS, HEAD_DIM
    )
    table = torch.tensor([[5, 2], [9, 4]])
    places = locations_of(table, torch.tensor([[2, 3, 4], [0, 1, 2]]))
    write_pages(keys, rows, places)
    flat = keys.view(-1, KEY_VALUE_HEADS, HEAD_DIM)
    assert torch.equal(flat[places], rows.flatten(0, 1))
    untouched = torch.ones(len(flat), dtype=torch.bool)
    untouched[places] = False
    assert (flat[untouched] == 7.0).all()


def test_a_piece_of_rows_is_written_where_its_location_says() -> None:
    keys, _ = pools(7.0)
    rows = torch.arange(3 * KEY_VALUE_HEADS * HEAD_DIM, dtype=torch.float32).view(
        1, 3, KEY_VALUE_HEADS, HEAD_DIM
    )
    expected = keys.clone()
    write_pages(expected, rows, torch.tensor([22, 23, 24]))
    host.write_pages(keys, rows, 22)
    assert torch.equal(keys, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_output_has_the_dtype_of_the_query(dtype: torch.dtype) -> None:
    keys, values = (pool.to(dtype) for pool in pools(1.0))
    query = torch.ones(1, 2, 2, HEAD_DIM, dtype=dtype)
    for attended in (
        paged_attention(query, keys, values, torch.tensor([[1]]), (1,)),
        fused.paged_attention(query, keys, values, torch.tensor([[1]]), (1,)),
        host.paged_attention(query, keys, values, PAGE_SIZE, 1),
    ):
        assert attended.dtype == dtype
        torch.testing.assert_close(attended, torch.ones_like(attended))


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "start"), [(1024, 0), (700, 1500), (1, 900), (5, 3)])
def test_prompts_on_a_gpu(rows: int, start: int) -> None:
    """At the 35B's widths in BF16, against the definition in float32."""
    generator = torch.Generator("cuda").manual_seed(0)
    context, page_size = start + rows, 16
    pages = -(-context // page_size)
    table = (torch.randperm(pages, generator=generator, device="cuda") + 1).unsqueeze(0)
    keys, values = (torch.full((pages + 1, page_size, 2, 256), NAN, device="cuda") for _ in range(2))
    for pool in (keys, values):
        pool[1:] = torch.randn(pages, page_size, 2, 256, generator=generator, device="cuda").bfloat16()
    query = torch.randn(1, rows, 16, 256, generator=generator, device="cuda").bfloat16()
    expected = paged_attention(query.float(), keys, values, table, (start,))
    attended = fused.paged_attention(query, keys.bfloat16(), values.bfloat16(), table, (start,))
    # Weights and results are rounded to BF16; sums run over up to 2200 positions.
    torch.testing.assert_close(attended.float(), expected, atol=1e-2, rtol=1.6e-2)
