"""The weights of a checkpoint by what they do, in bytes as they lie on disk.

Sizes come from the headers, tensor by tensor, scales included. Without weight files they are what the
architecture asks for in the precision that the config declares, and the table says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from draftproof.architecture.spec import ExpertLayout, ModelSpec
from draftproof.architecture.tensor_plan import (
    ExpertLayouts,
    ModelPart,
    PlannedTensor,
    TensorGroup,
    plan_tensors,
)
from draftproof.checkpoint.alike import AlikeTensors, gather_alike
from draftproof.checkpoint.config import ConfigFiles
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.checkpoint.precision import WEIGHT_LEAVES, Leaves, Precision, decide, module_and_leaf
from draftproof.checkpoint.quantization import read_declarations
from draftproof.errors import ConfigError

_FLOATS = {"BF16": Precision.BF16, "F16": Precision.FP16, "F32": Precision.FP32}
_BLOCK = 128 * 128
_GROUP = 128
BYTES_PER_PARAMETER: Mapping[Precision, float] = {
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP32: 4.0,
    Precision.FP8_BLOCK: 1.0 + 2.0 / _BLOCK,
    Precision.FP8_TENSOR: 1.0,
    Precision.FP8_CHANNEL: 1.0,
    Precision.NVFP4_MODELOPT: 0.5 + 1.0 / 16,
    Precision.NVFP4_COMPRESSED: 0.5 + 1.0 / 16,
    Precision.MXFP4: 0.5 + 1.0 / 32,
    Precision.GPTQ: 0.5 + 2.5 / _GROUP,
    Precision.AWQ: 0.5 + 2.5 / _GROUP,
    Precision.INT4_PACKED: 0.5 + 2.0 / _GROUP,
    Precision.INT8: 1.0,
}
"""Scales included, with the usual group sizes; for weights that are planned and not there."""


class Sharding(Enum):
    """What tensor parallelism does with a weight."""

    SPLIT = "split over all ranks"
    KEY_VALUE = "split as far as there are key/value heads, then repeated"
    REPLICATED = "whole on every rank"


@dataclass(frozen=True)
class WeightGroup:
    """Weights that do the same, are stored alike, and are split alike.

    Attributes:
        part: trunk, MTP head or vision tower.
        group: what they do.
        sharding: what tensor parallelism does with them.
        precision: how they are stored.
        parameters: elements, unpacked, scales not counted.
        nbytes: bytes, scales included.
    """

    part: ModelPart
    group: TensorGroup
    sharding: Sharding
    precision: Precision
    parameters: int
    nbytes: float

    def per_rank(self, ranks: int, key_value_heads: int) -> float:
        """Bytes on one of `ranks` GPUs."""
        if self.sharding is Sharding.REPLICATED:
            return self.nbytes
        if self.sharding is Sharding.KEY_VALUE:
            return self.nbytes / min(ranks, key_value_heads)
        return self.nbytes / ranks


@dataclass(frozen=True)
class WeightTable:
    """All weights of a checkpoint.

    Attributes:
        groups: by part, then by what they do.
        source: where the sizes come from, in words.
        from_files: they were read from headers.
    """

    groups: tuple[WeightGroup, ...]
    source: str
    from_files: bool

    def select(self, part: ModelPart | None = None, *groups: TensorGroup) -> tuple[WeightGroup, ...]:
        """The groups of one part (None: of all) that do one of these things (none given: any)."""
        return tuple(
            row
            for row in self.groups
            if (part is None or row.part is part) and (not groups or row.group in groups)
        )

    @property
    def nbytes(self) -> float:
        """Bytes of all weights."""
        return sum(row.nbytes for row in self.groups)

    def precisions(self, part: ModelPart, group: TensorGroup) -> tuple[Precision, ...]:
        """How weights of one kind are stored, the one with most bytes first."""
        rows = sorted(self.select(part, group), key=lambda row: -row.nbytes)
        return tuple(dict.fromkeys(row.precision for row in rows))


_Key = tuple[ModelPart, TensorGroup, Sharding, Precision]


def weigh_tensors(entries: Iterable[TensorEntry]) -> WeightTable:
    """Weighs the tensors of headers, as `weigh_alike` does."""
    return weigh_alike(gather_alike(entries))


@paused_collection()
def weigh_alike(kinds: Iterable[AlikeTensors]) -> WeightTable:
    """Weighs tensors of which those that are alike stand together: 2,000 steps for 400,000 tensors.

    Tensors are told apart by their names, so that families whose shapes are not known can be weighed too.
    """
    modules: dict[tuple[str, bool], list[tuple[str, AlikeTensors]]] = {}
    for kind in kinds:
        module, leaf = module_and_leaf(kind.pattern)
        modules.setdefault((module, bool(kind.after)), []).append((leaf, kind))
    sums: dict[_Key, list[float]] = defaultdict(lambda: [0, 0.0])
    known: dict[object, tuple[Precision, int]] = {}
    for (module, _), parts in modules.items():
        part, group, sharding = classify(module)
        for leaves, count, nbytes in _alike_modules(parts):
            form = tuple((leaf, entry.dtype, entry.shape) for leaf, entry in leaves.items())
            if form not in known:
                known[form] = _stored(module, leaves)
            precision, parameters = known[form]
            row = sums[part, group, sharding, precision]
            row[0] += parameters * count
            row[1] += nbytes
    return WeightTable(_rows(sums), "sizes of the tensors on disk", True)


def weigh_config(spec: ModelSpec, files: ConfigFiles) -> WeightTable:
    """Weighs the tensors that an architecture asks for, in the precision that the config files declare.

    A precision that is not recognised counts as BF16.
    """
    try:
        declarations = read_declarations(files)
    except ConfigError:
        declarations = ()
    declared = declarations[-1].declared if declarations else None

    def precision_of(planned: PlannedTensor) -> Precision:
        if declared is None or not planned.is_linear or planned.part is ModelPart.VISION:
            return Precision.BF16
        if planned.group is TensorGroup.ROUTER:
            # No export quantises a router, and some forget to say so.
            return Precision.BF16
        precision = declared(_one_expert(planned.module)).precision
        return precision if precision and precision in BYTES_PER_PARAMETER else Precision.BF16

    source = (
        "as the config declares them" if declared else "BF16, since the config declares no other precision"
    )
    return _weigh_plan(spec, precision_of, f"{source}: there are no weight files")


def weigh_precisions(
    spec: ModelSpec, precisions: Mapping[tuple[ModelPart, TensorGroup], Precision]
) -> WeightTable:
    """Weighs an architecture in precisions that somebody names; everything else is BF16."""

    def precision_of(planned: PlannedTensor) -> Precision:
        if not planned.is_linear or planned.name.endswith(("in_proj_a.weight", "in_proj_b.weight")):
            return Precision.BF16
        return precisions.get((planned.part, planned.group), Precision.BF16)

    return _weigh_plan(spec, precision_of, "in the precisions that were named")


def classify(module: str) -> tuple[ModelPart, TensorGroup, Sharding]:
    """What a module does and how it is split, by its name on disk without the last part."""
    part = _part(module)
    if part is ModelPart.VISION:
        return part, TensorGroup.VISION, Sharding.SPLIT
    name = f"{module}."
    for marks, group, sharding in _BY_NAME:
        if any(mark in name for mark in marks):
            return part, group, sharding
    if part is ModelPart.MTP and "norm" not in module:
        return part, TensorGroup.MTP, Sharding.REPLICATED
    return part, TensorGroup.NORM, Sharding.REPLICATED


_BY_NAME = (
    ((".experts.", ".switch_mlp."), TensorGroup.ROUTED_EXPERT, Sharding.SPLIT),
    ((".shared_expert_gate", ".mlp.gate."), TensorGroup.ROUTER, Sharding.REPLICATED),
    ((".shared_expert",), TensorGroup.SHARED_EXPERT, Sharding.SPLIT),
    ((".linear_attn.norm", ".q_norm", ".k_norm", "layernorm"), TensorGroup.NORM, Sharding.REPLICATED),
    ((".linear_attn",), TensorGroup.GATED_DELTA_NET, Sharding.SPLIT),
    ((".self_attn.k_proj", ".self_attn.v_proj"), TensorGroup.ATTENTION, Sharding.KEY_VALUE),
    ((".self_attn",), TensorGroup.ATTENTION, Sharding.SPLIT),
    (("embed_tokens",), TensorGroup.EMBEDDING, Sharding.SPLIT),
    (("lm_head",), TensorGroup.LM_HEAD, Sharding.SPLIT),
    ((".mlp.",), TensorGroup.DENSE_MLP, Sharding.SPLIT),
)


def _part(module: str) -> ModelPart:
    if module.startswith("mtp.") or ".mtp." in module:
        return ModelPart.MTP
    return ModelPart.VISION if "visual." in module or "vision_" in module else ModelPart.TRUNK


def _alike_modules(parts: Sequence[tuple[str, AlikeTensors]]) -> Iterator[tuple[Leaves, int, int]]:
    """Modules that differ in nothing but the number of an expert: one of them, their number, and their bytes.

    Experts that all have the same parts are one row; else every expert is one.

    Args:
        parts: last part of the name, and the tensors of all experts that have this name and form.
    """
    numbers = parts[0][1].members.keys()
    names = {leaf for leaf, _ in parts}
    if len(names) == len(parts) and all(kind.members.keys() == numbers for _, kind in parts):
        one = next(iter(numbers))
        nbytes = sum(entry.nbytes for _, kind in parts for entry in kind.members.values())
        yield {leaf: kind.members[one] for leaf, kind in parts}, len(numbers), nbytes
        return
    for number in dict.fromkeys(number for _, kind in parts for number in kind.members):
        leaves = {leaf: kind.members[number] for leaf, kind in parts if number in kind.members}
        yield leaves, 1, sum(entry.nbytes for entry in leaves.values())


def _stored(module: str, leaves: Leaves) -> tuple[Precision, int]:
    """How a module is stored, and its elements."""
    if any(leaf in leaves for leaf in WEIGHT_LEAVES):
        stored = decide(module, leaves)
        bias = math.prod(leaves["bias"].shape) if "bias" in leaves else 0
        if stored.logical_shape is not None:
            return stored.precision, math.prod(stored.logical_shape) + bias
        bits = stored.precision.bits
        size = stored.weight.nbytes if stored.weight else 0
        return stored.precision, (size * 8 // bits if bits else size) + bias
    entries = tuple(leaves.values())
    precision = _FLOATS.get(entries[0].dtype, Precision.UNKNOWN)
    return precision, sum(math.prod(entry.shape) for entry in entries)


def _rows(sums: Mapping[_Key, list[float]]) -> tuple[WeightGroup, ...]:
    parts, groups = list(ModelPart), list(TensorGroup)
    rows = (WeightGroup(*key, int(row[0]), row[1]) for key, row in sums.items())
    return tuple(sorted(rows, key=lambda row: (parts.index(row.part), groups.index(row.group), -row.nbytes)))


def _weigh_plan(
    spec: ModelSpec, precision_of: Callable[[PlannedTensor], Precision], source: str
) -> WeightTable:
    sums: dict[_Key, list[float]] = defaultdict(lambda: [0, 0.0])
    # Fused experts weigh the same and are a hundred times fewer.
    for planned in plan_tensors(spec, ExpertLayouts(ExpertLayout.FUSED, ExpertLayout.FUSED)).tensors:
        precision = precision_of(planned)
        row = sums[(*classify(planned.module), precision)]
        row[0] += planned.parameters
        row[1] += planned.parameters * BYTES_PER_PARAMETER[precision]
    return WeightTable(_rows(sums), source, False)


def _one_expert(module: str) -> str:
    """The name of one expert's matrix for a fused one: exports that quantise write experts one by one."""
    return module.replace(".experts.gate_up_proj", ".experts.0.gate_proj").replace(
        ".experts.down_proj", ".experts.0.down_proj"
    )
