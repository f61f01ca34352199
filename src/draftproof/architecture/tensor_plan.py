"""Every tensor that an architecture requires, before quantisation: name, shape and role."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    ExpertLayout,
    GatedDeltaNetSpec,
    LayerSpec,
    ModelSpec,
    MoeSpec,
    MtpSpec,
)
from draftproof.architecture.vision_plan import vision_tensors

HEAD_PREFIX = "mtp."
_EXPERT_MARK = re.compile(r"\.mlp\.(?:experts\.[0-9]?|switch_mlp\.)")
"""What a name says about the layout of experts; a digit after it, when they lie one by one."""


class TensorGroup(Enum):
    """What a tensor does; the value is for reports."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    NORM = "norms"
    ATTENTION = "attention"
    GATED_DELTA_NET = "Gated DeltaNet"
    ROUTER = "routers"
    ROUTED_EXPERT = "routed experts"
    SHARED_EXPERT = "shared experts"
    DENSE_MLP = "MLP"
    MTP = "MTP projection"
    VISION = "vision tower"


class ModelPart(Enum):
    """Which part of the checkpoint a tensor belongs to."""

    TRUNK = "trunk"
    MTP = "MTP head"
    VISION = "vision tower"


class PlannedTensor(NamedTuple):
    """One tensor as the architecture defines it.

    Attributes:
        name: on disk, unquantised.
        shape: elements per dimension, unpacked.
        group: what it does.
        part: where it belongs.
        is_linear: a matrix (or a stack of them) that may be stored quantised.
    """

    name: str
    shape: tuple[int, ...]
    group: TensorGroup
    part: ModelPart
    is_linear: bool

    @property
    def module(self) -> str:
        """Its name without `.weight`."""
        return self.name.removesuffix(".weight")

    @property
    def parameters(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ExpertLayouts:
    """How routed experts lie on disk; released checkpoints mix the two parts."""

    trunk: ExpertLayout
    mtp: ExpertLayout


@dataclass(frozen=True)
class TensorPlan:
    """All tensors of one checkpoint, unquantised.

    Attributes:
        layouts: the expert layouts that it is for.
        tensors: trunk, head, vision tower, in this order.
    """

    layouts: ExpertLayouts
    tensors: tuple[PlannedTensor, ...]

    def of(self, part: ModelPart) -> tuple[PlannedTensor, ...]:
        """The tensors of one part."""
        return tuple(tensor for tensor in self.tensors if tensor.part is part)

    def parameters(self, part: ModelPart | None = None) -> int:
        """Number of elements, of one part or of all."""
        return sum(tensor.parameters for tensor in (self.tensors if part is None else self.of(part)))


def plan_tensors(spec: ModelSpec, layouts: ExpertLayouts) -> TensorPlan:
    """Lists every tensor of a model.

    Args:
        spec: the model.
        layouts: how its experts lie on disk (`detect_layouts`); ignored for a part without experts.
    """
    head = _head(spec, spec.mtp, layouts.mtp) if spec.mtp else ()
    tensors = (*_trunk(spec, layouts.trunk), *head, *vision(spec))
    return TensorPlan(layouts, tensors)


def vision(spec: ModelSpec) -> Iterator[PlannedTensor]:
    """The tensors of the vision tower; nothing for a text-only model."""
    if spec.vision is not None:
        for name, shape, is_linear in vision_tensors(spec.vision):
            yield PlannedTensor(name, shape, TensorGroup.VISION, ModelPart.VISION, is_linear)


def detect_layouts(names: Iterable[str]) -> ExpertLayouts:
    """How experts lie on disk, by tensor names; the form that more tensors have, when a part mixes them."""
    trunk, head = Counter[str](), Counter[str]()
    for name in names:
        found = _EXPERT_MARK.search(name)
        if found:
            (head if HEAD_PREFIX in name else trunk)[found[0]] += 1
    return ExpertLayouts(_most_common(trunk), _most_common(head))


def _most_common(marks: Counter[str]) -> ExpertLayout:
    counts = dict.fromkeys(ExpertLayout, 0)
    for mark, count in marks.items():
        if mark.startswith(".mlp.switch"):
            counts[ExpertLayout.STACKED] += count
        else:
            counts[ExpertLayout.PER_EXPERT if mark[-1].isdigit() else ExpertLayout.FUSED] += count
    return max(counts, key=lambda layout: counts[layout]) if marks else ExpertLayout.NONE


def _trunk(spec: ModelSpec, layout: ExpertLayout) -> Iterator[PlannedTensor]:
    writer = _Writer(spec.hidden_size, ModelPart.TRUNK, layout)
    prefix = spec.text_prefix
    table = (spec.vocab_size, spec.hidden_size)
    yield PlannedTensor(
        f"{prefix}embed_tokens.weight", table, TensorGroup.EMBEDDING, ModelPart.TRUNK, is_linear=False
    )
    for index, layer in enumerate(spec.layers):
        yield from writer.layer(f"{prefix}layers.{index}.", layer)
    yield writer.norm(f"{prefix}norm.weight", spec.hidden_size)
    if not spec.tie_word_embeddings:
        yield writer.linear("lm_head", table, TensorGroup.LM_HEAD)


def _head(spec: ModelSpec, mtp: MtpSpec, layout: ExpertLayout) -> Iterator[PlannedTensor]:
    hidden = spec.hidden_size
    writer = _Writer(hidden, ModelPart.MTP, layout)
    yield writer.linear("mtp.fc", (hidden, 2 * hidden), TensorGroup.MTP)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield writer.norm(f"mtp.{name}.weight", hidden)
    for index in range(mtp.num_layers):
        yield from writer.layer(f"mtp.layers.{index}.", mtp.layer)
    if mtp.dedicated_embeddings:
        table = (spec.vocab_size, hidden)
        yield PlannedTensor(
            "mtp.embed_tokens.weight", table, TensorGroup.EMBEDDING, ModelPart.MTP, is_linear=False
        )


class _Writer:
    """Names and shapes of the modules of one part."""

    def __init__(self, hidden: int, part: ModelPart, layout: ExpertLayout) -> None:
        self._hidden = hidden
        self._part = part
        self._layout = layout

    def linear(self, module: str, shape: tuple[int, ...], group: TensorGroup) -> PlannedTensor:
        return PlannedTensor(f"{module}.weight", shape, group, self._part, True)

    def norm(self, name: str, width: int) -> PlannedTensor:
        return PlannedTensor(name, (width,), TensorGroup.NORM, self._part, False)

    def layer(self, prefix: str, layer: LayerSpec) -> Iterator[PlannedTensor]:
        yield self.norm(f"{prefix}input_layernorm.weight", self._hidden)
        if isinstance(layer.mixer, AttentionSpec):
            yield from self._attention(f"{prefix}self_attn.", layer.mixer)
        else:
            yield from self._gated_delta_net(f"{prefix}linear_attn.", layer.mixer)
        yield self.norm(f"{prefix}post_attention_layernorm.weight", self._hidden)
        if isinstance(layer.mlp, DenseMlpSpec):
            size = layer.mlp.intermediate_size
            yield from self._mlp(f"{prefix}mlp.", size, TensorGroup.DENSE_MLP)
        else:
            yield from self._experts(f"{prefix}mlp.", layer.mlp)

    def _attention(self, prefix: str, spec: AttentionSpec) -> Iterator[PlannedTensor]:
        query, key_value = spec.num_heads * spec.head_dim, spec.num_key_value_heads * spec.head_dim
        shapes = {
            "q_proj": (query * (2 if spec.gated else 1), self._hidden),
            "k_proj": (key_value, self._hidden),
            "v_proj": (key_value, self._hidden),
            "o_proj": (self._hidden, query),
        }
        for name, shape in shapes.items():
            yield self.linear(f"{prefix}{name}", shape, TensorGroup.ATTENTION)
            if spec.bias:
                bias = f"{prefix}{name}.bias"
                yield PlannedTensor(bias, shape[:1], TensorGroup.ATTENTION, self._part, False)
        yield self.norm(f"{prefix}q_norm.weight", spec.head_dim)
        yield self.norm(f"{prefix}k_norm.weight", spec.head_dim)

    def _gated_delta_net(self, prefix: str, spec: GatedDeltaNetSpec) -> Iterator[PlannedTensor]:
        hidden, heads, group = self._hidden, spec.num_value_heads, TensorGroup.GATED_DELTA_NET
        if spec.fused_projections:
            inputs = {"in_proj_qkvz": spec.conv_dim + spec.value_dim, "in_proj_ba": 2 * heads}
        else:
            inputs = {
                "in_proj_qkv": spec.conv_dim,
                "in_proj_z": spec.value_dim,
                "in_proj_a": heads,
                "in_proj_b": heads,
            }
        for name, rows in inputs.items():
            yield self.linear(f"{prefix}{name}", (rows, hidden), group)
        others = {
            "conv1d.weight": (spec.conv_dim, 1, spec.conv_kernel),
            "A_log": (heads,),
            "dt_bias": (heads,),
            "norm.weight": (spec.value_head_dim,),
        }
        for name, shape in others.items():
            yield PlannedTensor(f"{prefix}{name}", shape, group, self._part, False)
        yield self.linear(f"{prefix}out_proj", (hidden, spec.value_dim), group)

    def _mlp(self, prefix: str, size: int, group: TensorGroup) -> Iterator[PlannedTensor]:
        yield self.linear(f"{prefix}gate_proj", (size, self._hidden), group)
        yield self.linear(f"{prefix}up_proj", (size, self._hidden), group)
        yield self.linear(f"{prefix}down_proj", (self._hidden, size), group)

    def _experts(self, prefix: str, spec: MoeSpec) -> Iterator[PlannedTensor]:
        hidden = self._hidden
        yield self.linear(f"{prefix}gate", (spec.num_experts, hidden), TensorGroup.ROUTER)
        if spec.shared_intermediate_size:
            yield self.linear(f"{prefix}shared_expert_gate", (1, hidden), TensorGroup.ROUTER)
            size = spec.shared_intermediate_size
            yield from self._mlp(f"{prefix}shared_expert.", size, TensorGroup.SHARED_EXPERT)
        group, count, size = TensorGroup.ROUTED_EXPERT, spec.num_experts, spec.intermediate_size
        if self._layout is ExpertLayout.FUSED:
            for name, shape in (
                ("gate_up_proj", (count, 2 * size, hidden)),
                ("down_proj", (count, hidden, size)),
            ):
                yield PlannedTensor(f"{prefix}experts.{name}", shape, group, self._part, True)
        elif self._layout is ExpertLayout.STACKED:
            yield self.linear(f"{prefix}switch_mlp.gate_proj", (count, size, hidden), group)
            yield self.linear(f"{prefix}switch_mlp.up_proj", (count, size, hidden), group)
            yield self.linear(f"{prefix}switch_mlp.down_proj", (count, hidden, size), group)
        else:
            # Also when no expert was found: their names are then what is missing.
            for expert in range(count):
                yield from self._mlp(f"{prefix}experts.{expert}.", size, group)
