"""How each module's weight is really stored, read from dtypes and companion tensors, never from a config.

A module is everything that shares a name up to the last dot: `mtp.fc` has `weight` and, when it is quantised,
`weight_scale` and others. Fused experts (`...experts.gate_up_proj`, no `.weight`) are modules of one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.inventory import Inventory

NVFP4_GROUP = 16
MXFP4_GROUP = 32
FP8_BLOCKS = (128, 64, 32, 16)
"""Block sizes that are recognised, the usual one first."""


class Precision(Enum):
    """How a weight is stored; the value is for reports."""

    BF16 = "BF16"
    FP16 = "FP16"
    FP32 = "FP32"
    FP8_BLOCK = "FP8 (block scales)"
    FP8_TENSOR = "FP8 (one scale)"
    FP8_CHANNEL = "FP8 (a scale per row)"
    NVFP4_MODELOPT = "NVFP4 (ModelOpt)"
    NVFP4_COMPRESSED = "NVFP4 (compressed-tensors)"
    GPTQ = "GPTQ"
    AWQ = "AWQ"
    MXFP4 = "MXFP4"
    INT4_PACKED = "INT4 (packed)"
    INT8 = "INT8"
    UNKNOWN = "unknown"

    @property
    def is_plain(self) -> bool:
        """Ordinary floating point, without scales."""
        return self in (Precision.BF16, Precision.FP16, Precision.FP32)

    @property
    def is_loaded(self) -> bool:
        """The engine can load it; the others are only recognised."""
        return self not in _RECOGNISED_ONLY

    @property
    def bits(self) -> int | None:
        """Bits per weight, scales not counted; None when unknown."""
        return _BITS.get(self)


_RECOGNISED_ONLY = {
    Precision.GPTQ,
    Precision.AWQ,
    Precision.MXFP4,
    Precision.INT4_PACKED,
    Precision.INT8,
    Precision.UNKNOWN,
}
_BITS = {
    Precision.BF16: 16,
    Precision.FP16: 16,
    Precision.FP32: 32,
    Precision.FP8_BLOCK: 8,
    Precision.FP8_TENSOR: 8,
    Precision.FP8_CHANNEL: 8,
    Precision.NVFP4_MODELOPT: 4,
    Precision.NVFP4_COMPRESSED: 4,
    Precision.GPTQ: 4,
    Precision.AWQ: 4,
    Precision.MXFP4: 4,
    Precision.INT4_PACKED: 4,
    Precision.INT8: 8,
}
_PLAIN = {"BF16": Precision.BF16, "F16": Precision.FP16, "F32": Precision.FP32}
_FP8_DTYPES = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")

WEIGHT_LEAVES = ("weight", "weight_packed", "qweight")
COMPANION_LEAVES = (
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_global_scale",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "pre_quant_scale",
    "qzeros",
    "scales",
    "g_idx",
    "k_scale",
    "v_scale",
)
"""What belongs to a weight beside the weight itself, by the last part of its name."""
FUSED_EXPERT_ENDS = (".experts.gate_up_proj", ".experts.down_proj")

Leaves = Mapping[str, TensorEntry]
"""The tensors of one module by the last part of their names."""


@dataclass(frozen=True)
class ModulePrecision:
    """How one module is stored.

    Attributes:
        module: name without `.weight`.
        precision: what the tensors say.
        weight: the tensor that holds the weight; None when only companions are there.
        companions: scales and the like, by the last part of their names.
        logical_shape: [out, in] of the unpacked weight; None when it cannot be told.
        problems: sentences about what is missing or does not fit.
        block: rows and columns of an FP8 block; None otherwise.
    """

    module: str
    precision: Precision
    weight: TensorEntry | None
    companions: Leaves
    logical_shape: tuple[int, ...] | None
    problems: tuple[str, ...] = ()
    block: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the weight and its companions."""
        return sum(entry.nbytes for entry in self.companions.values()) + (
            self.weight.nbytes if self.weight else 0
        )


def group_by_module(tensors: Iterable[TensorEntry]) -> dict[str, dict[str, TensorEntry]]:
    """Module name -> last part of the name -> tensor, in one pass over all tensors.

    A fused expert tensor is a module of its own whose only part is "weight"; a name without a dot is a module
    whose only part is the name itself.
    """
    modules: dict[str, dict[str, TensorEntry]] = {}
    for entry in tensors:
        module, leaf = module_and_leaf(entry.name)
        modules.setdefault(module, {})[leaf] = entry
    return modules


def module_and_leaf(name: str) -> tuple[str, str]:
    """A tensor's module, and the last part of its name, as `group_by_module` says."""
    if name.endswith(FUSED_EXPERT_ENDS):
        return name, "weight"
    module, _, leaf = name.rpartition(".")
    return module, leaf


def module_precision(module: str, inventory: Inventory) -> ModulePrecision | None:
    """How one module is stored; None when the checkpoint has no tensor of it.

    For all modules at once, `group_by_module` and `decide` are faster.
    """
    tensors = inventory.tensors
    if module.endswith(FUSED_EXPERT_ENDS):
        leaves = {"weight": tensors[module]} if module in tensors else {}
    else:
        leaves = {
            leaf: tensors[f"{module}.{leaf}"]
            for leaf in (*WEIGHT_LEAVES, *COMPANION_LEAVES)
            if f"{module}.{leaf}" in tensors
        }
    return decide(module, leaves) if leaves else None


def decide(module: str, leaves: Leaves) -> ModulePrecision:
    """How a module is stored.

    Args:
        module: its name.
        leaves: its tensors by the last part of their names; parts that belong to no linear are ignored.
    """
    companions = {leaf: leaves[leaf] for leaf in COMPANION_LEAVES if leaf in leaves}
    for leaf, rule in _RULES:
        if leaf in leaves:
            weight = leaves[leaf]
            precision, shape, problems, block = rule(weight, companions)
            return ModulePrecision(module, precision, weight, companions, shape, problems, block)
    problem = (
        f"{module} has {', '.join(companions)} and no weight" if companions else f"{module} has no weight"
    )
    return ModulePrecision(module, Precision.UNKNOWN, None, companions, None, (problem,))


_Decision = tuple[Precision, tuple[int, ...] | None, tuple[str, ...], tuple[int, int] | None]


def _weight(weight: TensorEntry, companions: Leaves) -> _Decision:
    """A tensor called `weight` (or fused experts): plain, FP8, ModelOpt's NVFP4, MXFP4 or INT8."""
    plain = _PLAIN.get(weight.dtype)
    if plain is not None:
        return plain, weight.shape, _stray_scales(weight, companions), None
    if weight.dtype in _FP8_DTYPES:
        return _fp8(weight, companions)
    if weight.dtype in ("U8", "F4"):
        return _four_bits(weight, companions)
    if weight.dtype == "I8":
        return Precision.INT8, weight.shape, _missing(weight, companions, "weight_scale"), None
    return (
        Precision.UNKNOWN,
        None,
        (f"{weight.name} has dtype {weight.dtype}, which no known scheme uses",),
        None,
    )


def _fp8(weight: TensorEntry, companions: Leaves) -> _Decision:
    scale = companions.get("weight_scale_inv") or companions.get("weight_scale")
    if scale is None:
        problem = f"{weight.name} is {weight.dtype} and has neither weight_scale_inv nor weight_scale"
        return Precision.UNKNOWN, weight.shape, (problem,), None
    shape, rows = weight.shape, weight.shape[0] if weight.shape else 1
    elements = 1
    for size in scale.shape:
        elements *= size
    if elements == 1 and (len(scale.shape) < 2 or max(shape, default=1) > max(FP8_BLOCKS)):
        return Precision.FP8_TENSOR, shape, (), None
    if scale.shape in ((rows,), (rows, 1)) and scale.name.endswith(".weight_scale"):
        return Precision.FP8_CHANNEL, shape, (), None
    block = _fp8_block(shape, scale.shape)
    if block is None:
        problem = (
            f"{scale.name} has shape {list(scale.shape)}, which fits no block of {weight.name} {list(shape)}"
        )
        return Precision.FP8_BLOCK, shape, (problem,), None
    return Precision.FP8_BLOCK, shape, (), block


def _fp8_block(weight: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, int] | None:
    """The block size by which a scale covers a weight; the largest when several do."""
    if len(weight) < 2 or len(scale) != len(weight) or weight[:-2] != scale[:-2]:
        return None
    sides = [
        next((side for side in FP8_BLOCKS if -(-size // side) == blocks), None)
        for size, blocks in zip(weight[-2:], scale[-2:], strict=True)
    ]
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def _four_bits(weight: TensorEntry, companions: Leaves) -> _Decision:
    scale = companions.get("weight_scale")
    shape = (
        (*weight.shape[:-1], weight.shape[-1] * (1 if weight.dtype == "F4" else 2)) if weight.shape else None
    )
    if scale is not None and scale.dtype in ("U8", "F8_E8M0"):
        return Precision.MXFP4, shape, _group_problem(weight, shape, scale, MXFP4_GROUP), None
    if scale is None and "weight_scale_2" not in companions:
        problem = f"{weight.name} is {weight.dtype} and has no weight_scale"
        return Precision.UNKNOWN, None, (problem,), None
    problems = _missing(weight, companions, "weight_scale", "weight_scale_2")
    problems += _group_problem(weight, shape, scale, NVFP4_GROUP)
    return Precision.NVFP4_MODELOPT, shape, problems, None


def _packed(weight: TensorEntry, companions: Leaves) -> _Decision:
    """compressed-tensors' `weight_packed`: NVFP4 or MXFP4 in bytes, INT4 in words."""
    if weight.dtype != "U8":
        return Precision.INT4_PACKED, None, _missing(weight, companions, "weight_scale"), None
    shape = (*weight.shape[:-1], weight.shape[-1] * 2) if weight.shape else None
    scale = companions.get("weight_scale")
    if scale is not None and scale.dtype in ("U8", "F8_E8M0"):
        return Precision.MXFP4, shape, _group_problem(weight, shape, scale, MXFP4_GROUP), None
    problems = _missing(weight, companions, "weight_scale", "weight_global_scale")
    problems += _group_problem(weight, shape, scale, NVFP4_GROUP)
    return Precision.NVFP4_COMPRESSED, shape, problems, None


def _word_packed(weight: TensorEntry, companions: Leaves) -> _Decision:
    """`qweight`: GPTQ packs rows [in/8, out], AWQ packs columns [in, out/8]."""
    scales = companions.get("scales")
    problems = _missing(weight, companions, "scales", "qzeros")
    if scales is None or len(scales.shape) != 2 or len(weight.shape) != 2:
        return Precision.GPTQ, None, problems, None
    if weight.shape[1] == scales.shape[1]:
        return Precision.GPTQ, (scales.shape[1], weight.shape[0] * 8), problems, None
    return Precision.AWQ, (scales.shape[1], weight.shape[0]), problems, None


def _stray_scales(weight: TensorEntry, companions: Leaves) -> tuple[str, ...]:
    """Scales of a weight beside a weight that needs none."""
    strays = [leaf for leaf in companions if leaf.startswith("weight_scale") or leaf == "weight_global_scale"]
    return tuple(f"{weight.name} is {weight.dtype} and yet has {leaf}" for leaf in strays)


def _missing(weight: TensorEntry, companions: Leaves, *needed: str) -> tuple[str, ...]:
    return tuple(
        f"{weight.name} is {weight.dtype} and has no {leaf}" for leaf in needed if leaf not in companions
    )


def _group_problem(
    weight: TensorEntry, shape: tuple[int, ...] | None, scale: TensorEntry | None, group: int
) -> tuple[str, ...]:
    """One scale for every `group` columns."""
    if shape is None or scale is None:
        return ()
    expected = (*shape[:-1], -(-shape[-1] // group))
    if scale.shape == expected:
        return ()
    return (f"{scale.name} has shape {list(scale.shape)}, {weight.name} needs {list(expected)}",)


_Rule = Callable[[TensorEntry, Leaves], _Decision]
_RULES: tuple[tuple[str, _Rule], ...] = (
    ("weight_packed", _packed),
    ("qweight", _word_packed),
    ("weight", _weight),
)
