"""Drawing tokens in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.noise.select import noise_for


def draw_tokens(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    positions: Tensor,
) -> Tensor:
    """Draw one token for each row.

    Args:
        logits: [rows, vocabulary] float32; finite or -inf, and at least one finite in each row.
        temperature: [rows] float32, above 0.
        top_k: [rows] int64, at least 1; the vocabulary's size or more keeps all.
        top_p: [rows] float64, in (0, 1]; 1 keeps all.
        min_p: [rows] float64, in [0, 1]; 0 keeps all.
        seeds: [rows] int64.
        positions: [rows] int64, of the token that is drawn.

    Returns:
        [rows] int64.
    """
    vocabulary_size = logits.shape[1]
    # The largest becomes 0 first, so that a small temperature cannot overflow.
    scaled = (logits - logits.amax(1, keepdim=True)) / temperature.unsqueeze(1)
    top_k = top_k.clamp(max=vocabulary_size)
    ranked = top_k < vocabulary_size
    whole = ~ranked & (top_p == 1.0) & (min_p == 0.0)
    # Three kinds of rows that do not pay for each other: nothing is cut, a few are sorted, all are sorted.
    kinds = [rows for rows in (whole, ranked, ~(whole | ranked)) if bool(rows.any())]
    if len(kinds) == 1:
        return _draw_one_kind(scaled, top_k, top_p, min_p, seeds, positions, whole)
    tokens = torch.empty_like(seeds)
    for rows in kinds:
        tokens[rows] = _draw_one_kind(
            *(tensor[rows] for tensor in (scaled, top_k, top_p, min_p, seeds, positions, whole))
        )
    return tokens


def _draw_one_kind(
    scaled: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    positions: Tensor,
    whole: Tensor,
) -> Tensor:
    """Draw for rows that are all whole, or all cut in the same way."""
    if bool(whole[0]):
        noise = noise_for(scaled.device).of_vocabulary(seeds, positions, scaled.shape[1])
        return (scaled + noise).max(1).indices
    return _draw_truncated(scaled, top_k, top_p, min_p, seeds, positions)


def _draw_truncated(
    scaled: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, seeds: Tensor, positions: Tensor
) -> Tensor:
    """Draw among the tokens that truncation leaves; noise is made for those only."""
    values, token_ids, top_k_value = _largest(scaled, top_k)
    # Sums run from the largest value on: columns that only other rows need add zeros at the end.
    mass = torch.where(values >= top_k_value, values.double().exp(), 0.0).cumsum(1)
    last_kept = (mass < mass[:, -1:] * top_p.unsqueeze(1)).sum(1, keepdim=True)
    top_p_value = values.gather(1, last_kept)
    top_p_value = torch.where(top_p.unsqueeze(1) < 1.0, top_p_value, -torch.inf)
    min_p_value = min_p.log().to(values.dtype).unsqueeze(1)
    kept = values >= top_k_value.maximum(top_p_value).maximum(min_p_value)
    width = int(kept.sum(1).max())
    kept, values, token_ids = kept[:, :width], values[:, :width], token_ids[:, :width]
    noise = noise_for(scaled.device).of_tokens(seeds, positions, token_ids)
    scores = torch.where(kept, values + noise, -torch.inf)
    winners = scores == scores.amax(1, keepdim=True)
    return torch.where(winners, token_ids, scaled.shape[1]).amin(1)


def _largest(scaled: Tensor, top_k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest values in falling order, their ids, and the smallest value that top-k keeps, [rows, 1].

    As many as the row that keeps most needs, ties included.
    """
    vocabulary_size = scaled.shape[1]
    width = int(top_k.max())
    values, token_ids = scaled.topk(width, 1)
    # Where fewer than k tokens are left the k-th value is -inf, which everything would tie with.
    smallest = torch.finfo(values.dtype).min
    top_k_value = values.gather(1, top_k.unsqueeze(1) - 1).clamp(min=smallest)
    if width < vocabulary_size:
        with_ties = int((scaled >= top_k_value).sum(1).max())
        if with_ties > width:
            values, token_ids = scaled.topk(with_ties, 1)
    return values, token_ids, top_k_value
