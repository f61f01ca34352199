"""What stands between a mixer's projections: attention over pages, and the gated delta rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from draftproof.device.checks.called import (
    CheckedCall,
    CheckSubject,
    Numbers,
    error_of,
    integers,
    taking_turns,
)
from draftproof.device.checks.products import all_layers
from draftproof.device.shapes import StepShape
from draftproof.device.weights import AttentionMixer, DeviceModel, RecurrentMixer
from draftproof.kernels.decode_attention import reference as attention_definition
from draftproof.kernels.decode_attention.parameters import AttentionParameters, Past, make_scratch
from draftproof.kernels.gated_delta_decode import reference as gated_delta_definition
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.runtime.pages import SCRAP_PAGE

CONTEXTS = (200, 0, 37, 5)
"""Committed positions of the sequences, in turns: several parts of a context, none, one."""


def check_mixers(subject: CheckSubject) -> Iterator[CheckedCall]:
    """Every kind of mixer, with every shape of steps."""
    numbers = subject.numbers()
    head = subject.model.head
    for shape in subject.shapes:
        for mixer in recurrent_kinds(subject.model):
            yield _check_gated_delta(subject, mixer, shape, numbers)
        for parameters in attention_kinds(subject.model):
            yield _check_attention(subject, parameters, shape, numbers)
        if head is not None and shape.draft_tokens and isinstance(head.layer.mixer, AttentionMixer):
            yield _check_selected(subject, head.layer.mixer.parameters, shape, numbers)


def recurrent_kinds(model: DeviceModel) -> Iterator[RecurrentMixer]:
    """One of every number and width of heads."""
    seen = set()
    for layer in all_layers(model):
        mixer = layer.mixer
        if isinstance(mixer, RecurrentMixer):
            kind = mixer.columns, mixer.width, mixer.parameters.num_key_heads, mixer.parameters.key_head_dim
            if kind not in seen:
                seen.add(kind)
                yield mixer


def attention_kinds(model: DeviceModel) -> Iterator[AttentionParameters]:
    """One of every number and width of heads."""
    seen = set()
    for layer in all_layers(model):
        mixer = layer.mixer
        if isinstance(mixer, AttentionMixer):
            parameters = mixer.parameters
            kind = parameters.heads, parameters.key_value_heads, parameters.head_dim, parameters.gated
            if kind not in seen:
                seen.add(kind)
                yield parameters


def _check_gated_delta(
    subject: CheckSubject, mixer: RecurrentMixer, shape: StepShape, numbers: Numbers
) -> CheckedCall:
    parameters, batch = mixer.parameters, shape.batch
    commit = Commit.STASH if shape.draft_tokens else Commit.ALL
    found = _random_state(mixer, batch + 1, subject.sizes.window_rows, numbers)
    expected = replace(found, **{each.name: getattr(found, each.name).clone() for each in fields(found)})
    geometry = _geometry(subject, shape, [])
    projected = numbers.random(shape.all_rows, mixer.projections.width)
    outputs = [torch.full_like(projected[:, : mixer.width], torch.nan).contiguous() for _ in range(2)]
    calls = (subject.kernels.gated_delta_decode, found), (gated_delta_definition.gated_delta_decode, expected)
    for (call, state), out in zip(calls, outputs, strict=True):
        call(projected, mixer.columns, parameters, state, geometry, commit, out)
    errors = [error_of(*outputs)]
    for each in fields(found):
        if getattr(expected, each.name).numel():
            errors.append(error_of(getattr(found, each.name), getattr(expected, each.name)))
    heads, width = parameters.negative_a.shape[0], parameters.norm.shape[0]
    name = f"{heads} heads of {width}, {batch} x {shape.rows} rows"
    return subject.judged(CheckedCall("gated_delta_decode", name, _largest(errors)))


def _random_state(
    mixer: RecurrentMixer, slots: int, window_rows: int, numbers: Numbers
) -> DeviceRecurrentState:
    parameters = mixer.parameters
    channels, taps = parameters.convolution.shape
    heads = parameters.negative_a.shape[0]
    return DeviceRecurrentState(
        recurrent=0.1 * numbers.wide(slots, heads, parameters.key_head_dim, parameters.norm.shape[0]),
        convolution=numbers.random(2, slots, taps - 1, channels),
        stash_inputs=numbers.random(2, slots, window_rows, channels),
        stash_log_decay=-numbers.shares(2, slots, window_rows, heads),
        stash_beta=numbers.shares(2, slots, window_rows, heads),
    )


def _geometry(subject: CheckSubject, shape: StepShape, lengths: list[int]) -> StepGeometry:
    """Sequences in all slots but the first, the last one first; slot s has pages of its own."""
    batch, device, page_size = shape.batch, subject.device, subject.sizes.page_size
    slots = batch + 1
    pages = -(-(max(lengths, default=0) + shape.rows) // page_size)
    table = 1 + torch.arange(slots * pages, dtype=torch.int32, device=device).view(slots, pages)
    return StepGeometry(
        rows=shape.rows,
        slots=integers(range(batch, 0, -1), device),
        lengths=integers([0, *lengths] if lengths else [0] * slots, device),
        pending=integers(taking_turns(range(subject.sizes.window_rows, -1, -1), slots), device),
        parity=integers(taking_turns((1, 0, 0), slots), device),
        page_table=table,
        page_size=page_size,
    )


def _contexts(subject: CheckSubject, parameters: AttentionParameters, shape: StepShape) -> list[int]:
    """As long as the positions allow."""
    longest = min(subject.sizes.max_positions, parameters.cos.shape[0]) - shape.rows
    return taking_turns([min(context, max(longest, 0)) for context in CONTEXTS], shape.batch)


class _Pages:
    """Keys and values of a check for the kernel and for the definition, the page tables of each."""

    def __init__(
        self, subject: CheckSubject, parameters: AttentionParameters, shape: StepShape, numbers: Numbers
    ) -> None:
        self.narrow = _geometry(subject, shape, _contexts(subject, parameters, shape))
        table = self.narrow.page_table
        pages = int(table.numel()) + 1
        shape_of_pool = pages, subject.sizes.page_size, parameters.key_value_heads, parameters.head_dim
        self.found = numbers.random(*shape_of_pool), numbers.random(*shape_of_pool)
        self.expected = self.found[0].clone(), self.found[1].clone()
        # As wide as the steps' own: how kernels share a context depends on it. The definition would gather it
        # all.
        wide = max(-(-subject.sizes.max_positions // subject.sizes.page_size), table.shape[1])
        padding = table.new_full((table.shape[0], wide - table.shape[1]), SCRAP_PAGE)
        self.wide = replace(self.narrow, page_table=torch.cat((table, padding), 1))
        self.longest = wide * subject.sizes.page_size

    def error(self, out: Tensor, expected: Tensor) -> float:
        pools = zip(self.found, self.expected, strict=True)
        return _largest([error_of(out, expected), *(error_of(*pair) for pair in pools)])


def _check_attention(
    subject: CheckSubject, parameters: AttentionParameters, shape: StepShape, numbers: Numbers
) -> CheckedCall:
    pages = _Pages(subject, parameters, shape, numbers)
    projected = numbers.random(shape.all_rows, parameters.query_width + 2 * parameters.key_width)
    scratch = make_scratch(parameters, shape.batch, shape.rows, pages.longest)
    width = parameters.heads * parameters.head_dim
    out, expected = (projected.new_full((shape.all_rows, width), torch.nan) for _ in range(2))
    subject.kernels.decode_attention(
        projected, parameters, *pages.found, pages.wide, scratch, out=out, past=Past.SETTLED
    )
    attention_definition.decode_attention(
        projected, parameters, *pages.expected, pages.narrow, scratch, out=expected
    )
    name = _attention_in_words(parameters, shape)
    return subject.judged(CheckedCall("decode_attention", name, pages.error(out, expected)))


def _check_selected(
    subject: CheckSubject, parameters: AttentionParameters, shape: StepShape, numbers: Numbers
) -> CheckedCall:
    pages = _Pages(subject, parameters, shape, numbers)
    projected = numbers.random(shape.all_rows, parameters.query_width + 2 * parameters.key_width)
    chosen = integers(taking_turns(range(shape.rows - 1, -1, -1), shape.batch), subject.device)
    scratch = make_scratch(parameters, shape.batch, 1, pages.longest)
    width = parameters.heads * parameters.head_dim
    out, expected = (projected.new_full((shape.batch, width), torch.nan) for _ in range(2))
    subject.kernels.decode_attention_selected(
        projected, parameters, *pages.found, pages.wide, chosen, scratch, out=out
    )
    attention_definition.decode_attention_selected(
        projected, parameters, *pages.expected, pages.narrow, chosen, scratch, out=expected
    )
    name = _attention_in_words(parameters, shape)
    return subject.judged(CheckedCall("decode_attention_selected", name, pages.error(out, expected)))


def _attention_in_words(parameters: AttentionParameters, shape: StepShape) -> str:
    heads = f"{parameters.heads} and {parameters.key_value_heads} heads of {parameters.head_dim}"
    return f"{heads}, {shape.batch} x {shape.rows} rows"


def _largest(errors: list[float]) -> float:
    """NaN when any is none."""
    return float(torch.tensor(errors).max())
