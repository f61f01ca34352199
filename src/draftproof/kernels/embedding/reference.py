"""Plain torch definition."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.norm.scale import NormScale


def embed_inputs(inputs: Tensor, slots: Tensor, embedding: Tensor, out: Tensor) -> None:
    """Embed each sequence's newest token and drafts.

    Args:
        inputs: [slots, 1 + most drafts] int32; NO_TOKEN counts as token 0, its row is dead.
        slots: [batch] int32.
        embedding: [vocabulary, hidden].
        out: [batch * rows, hidden], written; row j of a sequence is its input j.
    """
    rows = out.shape[0] // slots.shape[0]
    tokens = inputs[slots.long(), :rows].reshape(-1)
    out.copy_(embedding[tokens.clamp(min=0).long()])


def enter_head(
    tokens: Tensor,
    residual: Tensor,
    embedding: Tensor,
    embedding_norm: NormScale,
    output_norm: NormScale,
    hidden_norm: NormScale,
    out: Tensor,
) -> None:
    """Input of the head's first projection for the rows of a window: each row's own next token beside its
    hidden state.

    Args:
        tokens: [rows] int32, the token after each row's position; NO_TOKEN counts as token 0.
        residual: [rows, hidden], the residual stream behind the last layer.
        embedding: [vocabulary, hidden].
        embedding_norm: of the embedding.
        output_norm: the norm that ends the stack which the residual stream is of; its output, rounded to the
            stream's dtype, is the hidden state.
        hidden_norm: of the hidden state.
        out: [rows, 2 * hidden], written: normed embedding, then normed hidden state.
    """
    embedded = _normed(embedding[tokens.clamp(min=0).long()], embedding_norm)
    hidden = _normed(_normed(residual, output_norm), hidden_norm)
    out.copy_(torch.cat((embedded, hidden), 1))


def enter_chain(
    inputs: Tensor,
    place: int,
    slots: Tensor,
    residual: Tensor,
    embedding: Tensor,
    embedding_norm: NormScale,
    output_norm: NormScale,
    hidden_norm: NormScale,
    out: Tensor,
) -> None:
    """`enter_head` for one row of each sequence, whose next token is an input of its slot.

    Args:
        inputs: [slots, 1 + most drafts] int32.
        place: column of the token: 1 for the first draft.
        slots: [batch] int32.
        residual: [batch, hidden].
        embedding, embedding_norm, output_norm, hidden_norm, out: as in `enter_head`.
    """
    tokens = inputs[slots.long(), place]
    enter_head(tokens, residual, embedding, embedding_norm, output_norm, hidden_norm, out)


def last_rows(rows: Tensor, accepted: Tensor, out: Tensor) -> None:
    """Each sequence's last committed row of a window.

    Args:
        rows: [batch * window rows, width].
        accepted: [batch] int32, which row of each window.
        out: [batch, width], written.
    """
    batch = accepted.shape[0]
    windows = rows.view(batch, -1, rows.shape[1])
    out.copy_(windows[torch.arange(batch, device=rows.device), accepted.long()])


def _normed(rows: Tensor, norm: NormScale) -> Tensor:
    """RMSNorm in float32, rounded to the dtype of the rows."""
    wide = rows.float()
    return (wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + norm.epsilon) * norm.weight).to(
        rows.dtype
    )
