"""The number of accepted drafts against a walk over the window."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from draftproof.kernels.acceptance import host
from draftproof.kernels.acceptance.reference import count_accepted


def accepted_by_walking(drafts: list[int], sampled: list[int]) -> int:
    for index, draft in enumerate(drafts):
        if draft != sampled[index]:
            return index
    return len(drafts)


@given(st.data(), st.integers(1, 5), st.integers(0, 6))
def test_counts_drafts_up_to_the_first_difference(data: st.DataObject, batch: int, width: int) -> None:
    token = st.integers(0, 1)
    drafts = data.draw(
        st.lists(st.lists(token, min_size=width, max_size=width), min_size=batch, max_size=batch)
    )
    sampled = data.draw(
        st.lists(st.lists(token, min_size=width + 1, max_size=width + 1), min_size=batch, max_size=batch)
    )
    counts = data.draw(st.lists(st.integers(0, width), min_size=batch, max_size=batch))
    result = count_accepted(
        torch.tensor(drafts, dtype=torch.long).reshape(batch, width),
        torch.tensor(counts),
        torch.tensor(sampled),
    )
    expected = [
        accepted_by_walking(row[:count], target)
        for row, count, target in zip(drafts, counts, sampled, strict=True)
    ]
    assert result.tolist() == expected
    assert result.dtype == torch.int64
    chains = [row[:count] for row, count in zip(drafts, counts, strict=True)]
    assert host.count_accepted(chains, sampled) == expected
