"""Log probabilities of output tokens, as requests report them."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.request import TokenLogprob
from draftproof.runtime.sampler import token_logprobs


def logprobs_of(logits: Tensor, tokens: tuple[int, ...], top: int) -> tuple[TokenLogprob, ...]:
    """One for each token.

    Args:
        logits: [tokens, vocabulary] raw logits that the tokens were chosen from.
        tokens: the chosen ones.
        top: alternatives to report.
    """
    found = token_logprobs(logits, torch.tensor(tokens, device=logits.device), top)
    alternatives = zip(found.top_token_ids.tolist(), found.top.tolist(), strict=True)
    return tuple(
        TokenLogprob(token, chosen, tuple(zip(ids, values, strict=True)))
        for token, chosen, (ids, values) in zip(tokens, found.chosen.tolist(), alternatives, strict=True)
    )
