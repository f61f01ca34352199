"""Tell a near-tie from a defect: where two texts of one request part, were the tokens closer than rounding?

The logits of the parting position are computed afresh in a plain pass over the common text. Rounding is
measured on the same model and text: the largest difference between rows computed one by one and in windows of
other widths, and never less than one step of the model's own precision at the size of these logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.engine.request import Request
from draftproof.kernels.noise.reference import gumbel_noise
from draftproof.models.loading import LoadedModel
from draftproof.runtime.state_store import WindowKind
from tests.support.engines import Settings, make_store


@dataclass(frozen=True)
class Parting:
    """The first place where two texts differ.

    Attributes:
        index: output token.
        gap: difference of the two tokens' scores, which are logits over temperature plus noise.
        lead: by how much the best of the two beats every other token, negative when another token is better.
        rounding: largest score difference between several ways to compute the same rows.
    """

    index: int
    gap: float
    lead: float
    rounding: float

    @property
    def is_near_tie(self) -> bool:
        """The two tokens are the best ones and closer than twice the rounding."""
        return self.gap <= 2 * self.rounding and self.lead >= -2 * self.rounding


def part(
    model: LoadedModel, request: Request, plain: tuple[int, ...], other: tuple[int, ...]
) -> Parting | None:
    """Where two texts of a request without penalties part, or None when they are equal.

    A text that merely ends early parts where it ends, with an infinite gap.
    """
    if plain == other:
        return None
    shorter = min(len(plain), len(other))
    index = next((place for place in range(shorter) if plain[place] != other[place]), shorter)
    if index == shorter:
        return Parting(index, float("inf"), float("inf"), 0.0)
    tokens = [*request.prompt_ids, *plain[:index]]
    rows = logits_of(model, tokens, 1)
    others = [logits_of(model, tokens, width) for width in (2, 3, 4, 6, len(tokens))]
    step = torch.finfo(model.target.embedding.dtype).eps * float(rows[-1].abs().max())
    rounding = max(step, *(float((other - rows).abs().max()) for other in others))
    temperature = request.parameters.temperature or 1.0
    scores = rows[-1] / temperature
    if request.parameters.temperature:
        vocabulary = torch.arange(scores.shape[-1])
        address = torch.tensor([request.parameters.signed_seed]), torch.tensor([len(tokens)])
        scores = scores + gumbel_noise(*address, vocabulary)[0]
    first, second = scores[plain[index]], scores[other[index]]
    rest = scores.clone()
    rest[[plain[index], other[index]]] = -torch.inf
    return Parting(
        index,
        abs(float(first - second)),
        float(torch.maximum(first, second) - rest.max()),
        rounding / temperature,
    )


@torch.inference_mode()
def logits_of(model: LoadedModel, tokens: list[int], width: int) -> Tensor:
    """Logits of every position, [tokens, vocab], computed in windows of `width` rows."""
    store = make_store(model, Settings(slots=1, max_length=len(tokens)), model.target.embedding.dtype)
    store.open_slot(0, range(1, store.sizes.pages))
    found = []
    for begin in range(0, len(tokens), width):
        rows = tokens[begin : begin + width]
        window = store.begin([0], [len(rows)], WindowKind.EXTEND)
        found.append(model.target.logits(model.target.forward(torch.tensor([rows]), window.window)))
        window.commit([len(rows)])
    return torch.cat(found, 1)[0]
