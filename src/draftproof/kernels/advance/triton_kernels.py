"""The end of a pass as one program: a vector lane for each sequence."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.advance.state import MOST_ROWS, RECORD_WIDTH, EndFlag, RecordField
from draftproof.kernels.row_sampling.triton_kernels import is_last, leave_block, token_of_row

STOP = tl.constexpr(EndFlag.STOP.value)
LENGTH = tl.constexpr(EndFlag.LENGTH.value)
FAULT = tl.constexpr(EndFlag.FAULT.value)
HEADER = tl.constexpr(RecordField.TOKENS.value)
WIDTH = tl.constexpr(RECORD_WIDTH)
ROWS = tl.constexpr(MOST_ROWS)
NEVER = tl.constexpr(2**30)


@triton.jit
def leading_accepted(sampled, drafts, row, live):
    """[batch]: how many leading live drafts equal the sampled tokens."""
    refused = (sampled != drafts) | (row[None, :] >= live[:, None])
    return tl.min(tl.where(refused, row[None, :], ROWS), 1)


@triton.jit
def first_stop(emitted, stops, row, accepted, unstoppable):
    """[batch]: index of the first emitted token that ends the output; NEVER for none."""
    is_stop = tl.max((emitted[:, :, None] == stops[:, None, :]).to(tl.int32), 2) > 0
    counts = is_stop & (row[None, :] >= unstoppable[:, None]) & (row[None, :] <= accepted[:, None])
    return tl.min(tl.where(counts, row[None, :], NEVER), 1)


@triton.jit
def advance_sequences(
    sampled_rows, slots, running, lengths, pending, parity, inputs, inputs_stride, draft_counts, remaining,
    unstoppable, draft_limit, stop_tokens, accepted_out, window_lengths, draft_lengths, draft_stride,
    ring_step, records, entries, entry_stride, credit, thousandths, batch,
    T: tl.constexpr, K: tl.constexpr, BATCH: tl.constexpr, STOPS: tl.constexpr, STOP_LANES: tl.constexpr,
    SIMULATED: tl.constexpr,
):  # fmt: skip
    """Everything that ends a pass; see `reference.advance`."""
    place, row = tl.arange(0, BATCH), tl.arange(0, ROWS)
    mask = place < batch
    slot = tl.load(slots + place, mask=mask, other=0)
    step = tl.load(ring_step)
    runs = mask & (tl.load(running + slot, mask=mask, other=0) != 0)
    length = tl.load(lengths + slot, mask=mask, other=0)
    side = tl.load(parity + slot, mask=mask, other=0)
    left = tl.load(remaining + slot, mask=mask, other=0)
    barred = tl.load(unstoppable + slot, mask=mask, other=0)
    live = tl.load(draft_counts + slot, mask=mask, other=0)
    live = tl.where(runs, tl.minimum(live, T - 1), 0)
    tokens = tl.load(
        sampled_rows + place[:, None] * T + row[None, :],
        mask=mask[:, None] & (row < T)[None, :], other=0, cache_modifier=".cg",
    )  # fmt: skip
    drafts = tl.load(
        inputs + slot[:, None] * inputs_stride + 1 + row[None, :],
        mask=mask[:, None] & (row < T - 1)[None, :], other=-1,
    )  # fmt: skip
    lanes = tl.arange(0, STOP_LANES)[None, :]
    stops = tl.load(
        stop_tokens + slot[:, None] * STOPS + lanes, mask=mask[:, None] & (lanes < STOPS), other=-1
    )
    # No token is -2.
    stops = tl.where(stops < 0, -2, stops)
    room = tl.minimum(tl.load(draft_limit + slot, mask=mask, other=0), K)
    faulty = tl.max(((tokens < 0) & (row[None, :] <= live[:, None])).to(tl.int32), 1) > 0
    if SIMULATED:
        owed = tl.load(credit + slot, mask=mask, other=0) + thousandths
        accepted = tl.minimum(owed // 1000, live)
        stands_in = row[None, :] < accepted[:, None]
        faulty = faulty | (tl.max((stands_in & (drafts < 0)).to(tl.int32), 1) > 0)
        tokens = tl.where(stands_in & (faulty == 0)[:, None], drafts, tokens)
    else:
        accepted = leading_accepted(tokens, drafts, row, live)
    moves = runs & (faulty == 0)
    stop = first_stop(tokens, stops, row, accepted, barred)
    kept = tl.minimum(tl.minimum(accepted, stop) + 1, left)
    end = tl.where((stop <= accepted) & (stop < left), STOP, tl.where(left <= accepted + 1, LENGTH, 0))
    end = tl.where(moves, end, tl.where(runs, FAULT, 0))
    accepted = tl.where(moves, accepted, 0)
    kept = tl.where(moves, kept, 0)
    newest = tl.sum(tl.where(row[None, :] == accepted[:, None], tokens, 0), 1)
    left -= kept
    moved = length + tl.where(moves, accepted + 1, 0)
    # Lanes may hold copies of a sequence: all of them must have read before one writes.
    tl.debug_barrier()
    tl.store(running + slot, (end == 0).to(tl.int32), mask=runs)
    tl.store(lengths + slot, moved, mask=moves)
    tl.store(pending + slot, tl.where(T > 1, accepted + 1, 0), mask=moves)
    tl.store(parity + slot, side ^ 1, mask=moves)
    tl.store(inputs + slot * inputs_stride, newest, mask=moves)
    tl.store(draft_counts + slot, tl.maximum(tl.minimum(room, left - 1), 0), mask=moves)
    tl.store(remaining + slot, left, mask=moves)
    tl.store(unstoppable + slot, barred - kept, mask=moves)
    if SIMULATED:
        tl.store(credit + slot, tl.minimum(owed - 1000 * accepted, 999), mask=moves)
        tl.store(
            sampled_rows + place[:, None] * T + row[None, :], tokens,
            mask=moves[:, None] & (row[None, :] < accepted[:, None]),
        )  # fmt: skip
    tl.store(accepted_out + place, accepted, mask=mask)
    tl.store(window_lengths + slot, length, mask=mask)
    for draft in tl.static_range(K):
        tl.store(draft_lengths + draft * draft_stride + slot, length + accepted + 1 + draft, mask=mask)
    tl.store(ring_step, step + 1)
    record = records + (step % entries) * entry_stride + place[:, None] * WIDTH
    field = tl.arange(0, HEADER)[None, :]
    header = tl.where(field == 0, step, tl.where(field == 1, slot[:, None], 0))
    header = tl.where(field == 2, kept[:, None], tl.where(field == 3, end[:, None], header))
    header = tl.where(field == 4, accepted[:, None], tl.where(field == 5, live[:, None], header))
    header = tl.where(field == 6, moved[:, None], header)
    tl.store(record + field, header, mask=mask[:, None] & (field >= 0))
    tl.store(record + HEADER + row[None, :], tokens, mask=mask[:, None] & (row < T)[None, :])


@triton.jit
def advance_batch(
    sampled_rows, slots, running, lengths, pending, parity, inputs, inputs_stride, draft_counts, remaining,
    unstoppable, draft_limit, stop_tokens, accepted_out, window_lengths, draft_lengths, draft_stride,
    ring_step, records, entries, entry_stride, credit, thousandths, batch,
    T: tl.constexpr, K: tl.constexpr, BATCH: tl.constexpr, STOPS: tl.constexpr, STOP_LANES: tl.constexpr,
    SIMULATED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The end of a pass after its tokens were chosen."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    advance_sequences(
        sampled_rows, slots, running, lengths, pending, parity, inputs, inputs_stride, draft_counts,
        remaining, unstoppable, draft_limit, stop_tokens, accepted_out, window_lengths,
        draft_lengths, draft_stride, ring_step, records, entries, entry_stride, credit, thousandths,
        batch, T, K, BATCH, STOPS, STOP_LANES, SIMULATED,
    )  # fmt: skip


@triton.jit
def sample_and_advance_batch(
    logits, stride, temperature, seeds, partial, size, places, arrivals, vocabulary, blocks,
    sampled_rows, slots, running, lengths, pending, parity, inputs, inputs_stride, draft_counts, remaining,
    unstoppable, draft_limit, stop_tokens, accepted_out, window_lengths, draft_lengths, draft_stride,
    ring_step, records, entries, entry_stride, credit, thousandths, batch,
    DRAWN: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    T: tl.constexpr, K: tl.constexpr, BATCH: tl.constexpr, STOPS: tl.constexpr, STOP_LANES: tl.constexpr,
    SIMULATED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Tokens of rows that are not truncated, then the end of the pass by the last program of all."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // T)
    position = tl.load(lengths + slot) + row % T + 1
    heat, seed = tl.load(temperature + slot), tl.load(seeds + slot)
    logits += row.to(tl.int64) * stride
    partial += row * blocks
    places += row * blocks
    leave_block(
        logits, block, heat, seed, position, logits, 0, partial, size, places, vocabulary, blocks,
        DRAWN, False, False, BLOCK, BLOCKS,
    )  # fmt: skip
    rows = tl.num_programs(1)
    if is_last(arrivals + row, blocks):
        token = token_of_row(
            logits, heat, seed, position, logits, 0, partial, size, places, vocabulary, blocks,
            DRAWN, False, False, MARGIN, BLOCK, BLOCKS,
        )  # fmt: skip
        tl.store(sampled_rows + row, token)
        if is_last(arrivals + rows, rows):
            advance_sequences(
                sampled_rows, slots, running, lengths, pending, parity, inputs, inputs_stride,
                draft_counts, remaining, unstoppable, draft_limit, stop_tokens, accepted_out,
                window_lengths, draft_lengths, draft_stride, ring_step, records, entries,
                entry_stride, credit, thousandths, batch, T, K, BATCH, STOPS, STOP_LANES, SIMULATED,
            )  # fmt: skip
