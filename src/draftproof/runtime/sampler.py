"""Choosing one token for every row of a step's logits.

A row is chosen from its own logits and its sequence's context alone, so a token is the same whatever other
rows are in the batch and however many rows of its sequence are looked at in one step. The order is:
penalties, logit bias, min_tokens; then the largest logit when greedy, or temperature, top-k, top-p, min-p and
the largest of logits plus addressed noise (`kernels.sampling`). Of equal candidates the lowest token id wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftproof.errors import LogitsFault, UsageError
from draftproof.kernels.sampling.reference import draw_tokens
from draftproof.runtime.constraint import TokenConstraint
from draftproof.runtime.sampling import SamplingParameters

SHORT_LIST = 100
"""A list of ids is short when it names less than one token in so many: beyond it a whole mask is faster."""


class TokenHistory:
    """The distinct tokens of one sequence and how often each is in the output, counted as they come."""

    def __init__(self, prompt_ids: Iterable[int]) -> None:
        distinct = np.unique(np.fromiter(prompt_ids, dtype=np.int64))
        self._slots = {int(token_id): slot for slot, token_id in enumerate(distinct)}
        self._token_ids = distinct
        self._output_counts = np.zeros(len(distinct), dtype=np.float32)

    def append(self, token_ids: Iterable[int]) -> None:
        """Count output tokens."""
        for token_id in token_ids:
            slot = self._slots.setdefault(token_id, len(self._slots))
            if slot == len(self._token_ids):
                self._grow()
            self._token_ids[slot] = token_id
            self._output_counts[slot] += 1

    def _grow(self) -> None:
        """Double the room, so that growing costs a constant time per token."""
        room = max(len(self._token_ids), 16)
        self._token_ids = np.concatenate((self._token_ids, np.zeros(room, dtype=np.int64)))
        self._output_counts = np.concatenate((self._output_counts, np.zeros(room, dtype=np.float32)))

    def before_rows(
        self, drafts: Sequence[int], first_row: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """What precedes each row of a window, where row j also sees the first j drafts.

        Returns:
            Distinct token ids [tokens]; their output counts [rows, tokens]; whether they are in the prompt or
            the output [rows, tokens]. Rows are `first_row` to len(drafts).
        """
        known = len(self._slots)
        new = [token_id for token_id in dict.fromkeys(drafts) if token_id not in self._slots]
        token_ids = np.concatenate((self._token_ids[:known], np.array(new, dtype=np.int64)))
        counts = np.zeros((len(drafts) + 1 - first_row, len(token_ids)), dtype=np.float32)
        counts[:, :known] = self._output_counts[:known]
        for index, token_id in enumerate(drafts):
            slot = self._slots.get(token_id)
            column = known + new.index(token_id) if slot is None else slot
            counts[max(index + 1 - first_row, 0) :, column] += 1
        seen = counts > 0
        seen[:, :known] = True
        return token_ids, counts, seen


class SequenceContext:
    """What the sampler knows about one sequence: its parameters and its tokens so far.

    Args:
        parameters: the request's.
        prompt_ids: the prompt's token ids.
        eos_token_ids: the model's end-of-sequence tokens; like the request's stop tokens they cannot be
            chosen before `min_tokens`, unless the constraint leaves nothing else.
        vocabulary_size: width of the logits.
        constraint: limits the tokens, and is moved by `commit`; None when all are allowed.

    Raises:
        UsageError: a token id of the parameters is not in the vocabulary.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        prompt_ids: Sequence[int],
        eos_token_ids: Iterable[int],
        vocabulary_size: int,
        constraint: TokenConstraint | None = None,
    ) -> None:
        for token_id in (*(token_id for token_id, _ in parameters.logit_bias), *parameters.stop_token_ids):
            if token_id >= vocabulary_size:
                raise UsageError(f"token {token_id} is not in the vocabulary of {vocabulary_size} tokens")
        self.parameters = parameters
        self.prompt_count = len(prompt_ids)
        self.output_count = 0
        ending = {*eos_token_ids, *parameters.stop_token_ids}
        self.ending_token_ids = tuple(sorted(token_id for token_id in ending if token_id < vocabulary_size))
        self.history = TokenHistory(prompt_ids) if parameters.has_penalties else None
        self.constraint = constraint
        self._changes_logits = parameters.has_penalties or bool(parameters.logit_bias)

    @property
    def next_position(self) -> int:
        """Position of the token that follows the committed ones; the noise's address."""
        return self.prompt_count + self.output_count

    @property
    def changes_logits(self) -> bool:
        """True while penalties, bias, the constraint or min_tokens may act on the next tokens."""
        return self._changes_logits or self.output_count < self.parameters.min_tokens or self.is_constrained

    @property
    def is_constrained(self) -> bool:
        """True while the constraint may limit the next tokens."""
        return self.constraint is not None and self.constraint.is_active

    @property
    def is_plain(self) -> bool:
        """True when the next token is the largest raw logit."""
        return self.parameters.is_greedy and not self.changes_logits

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the output."""
        self.output_count += len(token_ids)
        if self.history is not None:
            self.history.append(token_ids)
        if self.constraint is not None:
            self.constraint.commit(token_ids)


@dataclass(frozen=True)
class SequenceRows:
    """Consecutive rows of one sequence in a step's logits.

    Row j chooses the token after the committed tokens and the first j drafts.

    Attributes:
        context: the sequence, with its committed tokens.
        drafts: tokens after the committed ones.
        first_row: rows `first_row` to len(drafts) are in the logits. 0 takes the whole window; len(drafts)
            takes only the token that follows the last draft.
    """

    context: SequenceContext
    drafts: Sequence[int] = ()
    first_row: int = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.drafts) + 1 - self.first_row


def sample_rows(logits: Tensor, windows: Sequence[SequenceRows]) -> Tensor:
    """Choose a token for every row.

    Args:
        logits: [rows, vocabulary] float32 on any device; not changed.
        windows: the rows' sequences in order; their counts add up to `rows`.

    Returns:
        [rows] int64 on the logits' device.

    Raises:
        LogitsFault: a row holds NaN or +inf, or leaves no token to choose; it names the rows.
        ValueError: logits and windows differ in their number of rows.
    """
    expected = sum(window.count for window in windows)
    if expected != logits.shape[0]:
        raise ValueError(f"{logits.shape[0]} rows of logits for windows of {expected} rows")
    largest, tokens = _largest(logits)
    _require_choice(largest)
    # Everything above is all that greedy batches need, and they must not pay for more.
    if all(window.context.is_plain for window in windows):
        return tokens
    selected = _Selection.of(windows)
    rows = torch.tensor(selected.rows, device=logits.device)
    chosen = logits.index_select(0, rows)
    for window, begin in selected.windows:
        if window.context.changes_logits:
            apply_context(chosen[begin : begin + window.count], window)
    largest, chosen_tokens = _largest(chosen)
    _require_choice(largest, selected.rows)
    if selected.drawn:
        drawn = torch.tensor(selected.drawn, device=logits.device)
        chosen_tokens[drawn] = _draw(chosen.index_select(0, drawn), selected)
    return tokens.index_copy_(0, rows, chosen_tokens)


def sample_drafts(logits: Tensor, windows: Sequence[SequenceRows]) -> Tensor:
    """Choose a draft for every row, as `sample_rows` would; any token where there is none to choose.

    A draft can be wrong but must not cost a request its answer: if there is a fault, the target finds it.
    """
    try:
        return sample_rows(logits, windows)
    except LogitsFault:
        return logits.nan_to_num().argmax(1)


def apply_context(logits: Tensor, window: SequenceRows) -> None:
    """Apply penalties, logit bias, constraint and min_tokens to a window's rows, in place.

    Args:
        logits: [rows of the window, vocabulary] float32.
        window: whose rows they are.
    """
    context, parameters = window.context, window.context.parameters
    if context.history is not None:
        _apply_penalties(logits, context.history, parameters, window)
    if parameters.logit_bias:
        token_ids, biases = zip(*parameters.logit_bias, strict=True)
        added = torch.tensor(biases, dtype=logits.dtype, device=logits.device)
        logits[:, torch.tensor(token_ids, device=logits.device)] += added
    too_early = range(min(parameters.min_tokens - context.output_count - window.first_row, window.count))
    endings = context.ending_token_ids
    rows_without_end: Sequence[int] = too_early if endings else ()
    if context.constraint is not None and context.is_constrained:
        masks = context.constraint.allowed(window.drafts, window.first_row)
        _apply_masks(logits, masks)
        # Where an answer can only end, it ends: min_tokens cannot lengthen it.
        rows_without_end = [row for row in rows_without_end if _goes_on(masks[row], endings)]
    if rows_without_end:
        rows = torch.tensor(rows_without_end, device=logits.device)
        logits[rows.unsqueeze(1), torch.tensor(endings, device=logits.device)] = -torch.inf


def _apply_masks(logits: Tensor, masks: Sequence[NDArray[np.bool_] | None]) -> None:
    for row, mask in zip(logits, masks, strict=True):
        if mask is None:
            continue
        allowed = int(np.count_nonzero(mask))
        # Most masks allow few tokens or nearly all: then the short list is all that goes to the device.
        if allowed * SHORT_LIST < len(mask):
            token_ids = torch.from_numpy(np.flatnonzero(mask)).to(logits.device)
            kept = row[token_ids]
            row.fill_(-torch.inf)
            row[token_ids] = kept
        elif (len(mask) - allowed) * SHORT_LIST < len(mask):
            row[torch.from_numpy(np.flatnonzero(~mask)).to(logits.device)] = -torch.inf
        else:
            row.masked_fill_(torch.from_numpy(~mask).to(logits.device), -torch.inf)


def _goes_on(mask: NDArray[np.bool_] | None, endings: Sequence[int]) -> bool:
    """Whether a mask allows any token but the endings."""
    return mask is None or int(np.count_nonzero(mask)) > int(np.count_nonzero(mask[list(endings)]))


def _apply_penalties(
    logits: Tensor, history: TokenHistory, parameters: SamplingParameters, window: SequenceRows
) -> None:
    """Repetition, frequency and presence penalty, of the tokens that each row's own past holds."""
    ids, output_counts, in_past = history.before_rows(window.drafts, window.first_row)
    token_ids = torch.from_numpy(ids).to(logits.device)
    counts = torch.from_numpy(output_counts).to(logits.device)
    seen = torch.from_numpy(in_past).to(logits.device)
    values = logits.index_select(1, token_ids)
    repeated = torch.where(
        values > 0, values / parameters.repetition_penalty, values * parameters.repetition_penalty
    )
    values = torch.where(seen, repeated, values)
    values = values - parameters.frequency_penalty * counts - parameters.presence_penalty * (counts > 0)
    logits.index_copy_(1, token_ids, values)


@dataclass
class _Selection:
    """The rows of a step that need more than their largest raw logit, and what drawing them takes."""

    rows: list[int] = field(default_factory=list)
    """Their numbers among all rows of the step."""
    windows: list[tuple[SequenceRows, int]] = field(default_factory=list)
    """Their windows, each with the index in `rows` at which it begins."""
    drawn: list[int] = field(default_factory=list)
    """Indices in `rows` of those that are not greedy; the lists below run along these."""
    parameters: list[SamplingParameters] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, windows: Sequence[SequenceRows]) -> _Selection:
        """Select from a step's windows."""
        selected = cls()
        row = 0
        for window in windows:
            context, count = window.context, window.count
            if not context.is_plain:
                begin = len(selected.rows)
                selected.windows.append((window, begin))
                selected.rows.extend(range(row, row + count))
                if not context.parameters.is_greedy:
                    position = context.next_position + window.first_row
                    selected.drawn.extend(range(begin, begin + count))
                    selected.parameters.extend([context.parameters] * count)
                    selected.positions.extend(range(position, position + count))
            row += count
        return selected


def _draw(logits: Tensor, selected: _Selection) -> Tensor:
    """Draw the rows that are not greedy."""
    vocabulary_size, device, parameters = logits.shape[1], logits.device, selected.parameters
    top_k = [each.top_k if each.top_k > 0 else vocabulary_size for each in parameters]
    return draw_tokens(
        logits,
        temperature=torch.tensor([each.temperature for each in parameters], device=device),
        top_k=torch.tensor(top_k, device=device),
        top_p=torch.tensor([each.top_p for each in parameters], dtype=torch.float64, device=device),
        min_p=torch.tensor([each.min_p for each in parameters], dtype=torch.float64, device=device),
        seeds=torch.tensor([each.signed_seed for each in parameters], device=device),
        positions=torch.tensor(selected.positions, device=device),
    )


def _largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's largest logit (NaN when it holds NaN) and the lowest token id that has it, both [rows]."""
    if logits.device.type != "cpu":
        largest, tokens = logits.max(1)
        return largest, tokens
    # On a CPU torch looks for the place of the largest number by number; numpy does not.
    return logits.amax(1), torch.from_numpy(logits.numpy().argmax(1))


def _require_choice(largest: Tensor, rows: Sequence[int] | None = None) -> None:
    """Refuse rows whose largest logit is NaN (it holds NaN), +inf, or -inf (no token is left)."""
    found = largest.tolist()
    if all(map(math.isfinite, found)):
        return
    indices = [index for index, value in enumerate(found) if not math.isfinite(value)]
    values = ", ".join(f"{found[index]:g}" for index in indices)
    faulty = tuple(rows[index] for index in indices) if rows is not None else tuple(indices)
    raise LogitsFault(
        f"no token can be chosen at rows {list(faulty)}: their largest logits are {values}", faulty
    )


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of the raw logits.

    Attributes:
        chosen: [rows] float32, of the chosen tokens.
        ranks: [rows] int64, how many tokens are more likely than the chosen one, plus 1.
        top_token_ids: [rows, top] int64, the most likely tokens in falling order, of equals the lowest id
            first.
        top: [rows, top] float32, theirs.
    """

    chosen: Tensor
    ranks: Tensor
    top_token_ids: Tensor
    top: Tensor


def token_logprobs(logits: Tensor, tokens: Tensor, top: int) -> TokenLogprobs:
    """Log-probabilities of chosen tokens and of the most likely ones.

    Args:
        logits: [rows, vocabulary] float32, as the model gave them.
        tokens: [rows] int64, chosen by whatever rule.
        top: how many of the most likely tokens to report; capped at the vocabulary's size.
    """
    logprobs = torch.log_softmax(logits, 1)
    chosen = logprobs.gather(1, tokens.unsqueeze(1))
    ranks = (logits > logits.gather(1, tokens.unsqueeze(1))).sum(1) + 1
    top_token_ids = _ordered_keys(logits).topk(min(top, logits.shape[1]), 1).indices
    return TokenLogprobs(chosen.squeeze(1), ranks, top_token_ids, logprobs.gather(1, top_token_ids))


def _ordered_keys(logits: Tensor) -> Tensor:
    """Distinct int64 keys, [rows, vocabulary], that rise with the logits and fall with the ids of equal
    ones."""
    # A float's bits sort like an integer's once those of negatives are flipped; adding zero makes -0.0 equal
    # 0.0.
    bits = (logits + 0.0).contiguous().view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    return ordered - torch.arange(logits.shape[1], device=logits.device)
