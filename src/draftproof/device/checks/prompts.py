"""What only a prompt's rows use: unpacked weights, experts, the chunked recurrence, attention over pages."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from draftproof.device.checks.called import CheckedCall, CheckSubject, Numbers, error_of
from draftproof.device.checks.mixers import attention_kinds, recurrent_kinds
from draftproof.device.checks.products import describe, distinct_matrices, first_rows, mixtures
from draftproof.device.weights import MixtureMlp, RecurrentMixer
from draftproof.kernels.decode_attention.parameters import AttentionParameters
from draftproof.kernels.experts_step import reference as experts_definition
from draftproof.kernels.gated_delta.chunked import gated_delta_chunked
from draftproof.kernels.gated_delta.reference import BLOCK_ROWS, gated_delta
from draftproof.kernels.packed_weights import unpacking
from draftproof.kernels.packed_weights.select import unpacker_for
from draftproof.kernels.paged_attention import fused, reference

EXPERT_ROWS, MOST_EXPERTS = 20, 12
"""Rows of a check of experts, and how many experts they share: more than half a block of pairs for each."""
SCAN_ROWS = BLOCK_ROWS + 7
"""A whole chunk and a part of one."""
ATTENTION_START, ATTENTION_ROWS = 43, 21
"""Positions before the rows, and rows: both end inside a page."""


def check_prompts(subject: CheckSubject) -> Iterator[CheckedCall]:
    """One call of each for every kind of weights."""
    numbers = subject.numbers()
    yield from _check_unpacking(subject)
    for mlp in mixtures(subject.model):
        yield _check_experts(subject, mlp, numbers)
    for mixer in recurrent_kinds(subject.model):
        yield _check_scan(subject, mixer, numbers)
    for parameters in attention_kinds(subject.model):
        yield _check_attention(subject, parameters, numbers)


def _check_unpacking(subject: CheckSubject) -> Iterator[CheckedCall]:
    unpack, dtype = unpacker_for(subject.device), subject.model.embedding.dtype
    for matrix in distinct_matrices(subject.model).values():
        for each in matrix.apart:
            part = each if each.paired else first_rows(each)
            error = error_of(unpack(part, dtype), unpacking.unpack(part, dtype))
            yield subject.judged(CheckedCall("unpack", describe(each), error))


def _check_experts(subject: CheckSubject, mlp: MixtureMlp, numbers: Numbers) -> CheckedCall:
    spec, experts = mlp.spec, mlp.experts
    rows = numbers.random(EXPERT_ROWS, experts.hidden)
    among = max(min(MOST_EXPERTS, spec.num_experts), spec.experts_per_token)
    weights, chosen = numbers.shares(EXPERT_ROWS, among).topk(spec.experts_per_token)
    found, expected = (
        call(rows, chosen, weights, spec, experts)
        for call in (subject.kernels.experts_of_prompt, experts_definition.experts_of_prompt)
    )
    name = f"{experts.format.value}, {experts.experts} of {experts.intermediate} x {experts.hidden}"
    return subject.judged(CheckedCall("experts_of_prompt", name, error_of(found, expected)))


def _check_scan(subject: CheckSubject, mixer: RecurrentMixer, numbers: Numbers) -> CheckedCall:
    parameters = mixer.parameters
    heads, key_dim, value_dim = (
        parameters.negative_a.shape[0],
        parameters.key_head_dim,
        parameters.norm.shape[0],
    )
    shape = 1, SCAN_ROWS, heads
    query, key = (F.normalize(numbers.wide(*shape, key_dim), dim=-1) for _ in range(2))
    value = numbers.wide(*shape, value_dim)
    log_decay, beta = -0.2 * numbers.shares(*shape), numbers.shares(*shape)
    state = numbers.wide(1, heads, key_dim, value_dim)
    operands = query, key, value, log_decay, beta, state, SCAN_ROWS
    found, expected = gated_delta_chunked(*operands), gated_delta(*operands)
    errors = torch.tensor([error_of(*pair) for pair in zip(found, expected, strict=True)])
    name = f"{heads} heads of {key_dim} x {value_dim}"
    return subject.judged(CheckedCall("gated_delta_chunked", name, float(errors.max())))


def _check_attention(subject: CheckSubject, parameters: AttentionParameters, numbers: Numbers) -> CheckedCall:
    page_size, width = subject.sizes.page_size, parameters.head_dim
    pages = -(-(ATTENTION_START + ATTENTION_ROWS) // page_size)
    keys, values = (numbers.random(pages + 1, page_size, parameters.key_value_heads, width) for _ in range(2))
    # Not in the order in which they lie.
    table = torch.arange(pages, 0, -1, device=subject.device).unsqueeze(0)
    query = numbers.random(1, ATTENTION_ROWS, parameters.heads, width)
    start = (ATTENTION_START,)
    found = fused.paged_attention(query, keys, values, table, start)
    # In float32: in BF16 the definition would round its weights.
    expected = reference.paged_attention(query.float(), keys.float(), values.float(), table, start)
    name = f"{parameters.heads} and {parameters.key_value_heads} heads of {width}"
    return subject.judged(CheckedCall("paged_attention", name, error_of(found, expected)))
