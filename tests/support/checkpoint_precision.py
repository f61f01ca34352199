"""Which modules of a generated checkpoint are stored in which encoding, and what each looks like on disk."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tests.support.raw_safetensors import BYTES_PER_ELEMENT
from tools import quantization

if TYPE_CHECKING:
    from torch import Tensor


class Encoding(Enum):
    """How one linear's weight lies on disk; the value is for messages."""

    BF16 = "bf16"
    FP32 = "fp32"
    FP8_BLOCK = "fp8_block"
    """`weight`, `weight_scale_inv` BF16 or F32 [blocks of rows, blocks of columns]."""
    FP8_TENSOR = "fp8_tensor"
    """ModelOpt: `weight`, `weight_scale` F32 [], `input_scale` F32 []."""
    FP8_CHANNEL = "fp8_channel"
    """compressed-tensors: `weight`, `weight_scale` F32 [out, 1]."""
    NVFP4 = "nvfp4"
    """ModelOpt W4A4: `weight`, `weight_scale`, `weight_scale_2`, `input_scale`."""
    NVFP4_WEIGHT_ONLY = "nvfp4_weight_only"
    """ModelOpt W4A16 as some exporters write it: as NVFP4 without `input_scale`."""
    NVFP4_COMPRESSED = "nvfp4_compressed"
    """`weight_packed`, `weight_scale`, `weight_global_scale` [1], `input_global_scale` [1]; both divisors."""

    @property
    def quantized(self) -> bool:
        """True for everything but plain floating point."""
        return self not in (Encoding.BF16, Encoding.FP32)


class Dialect(Enum):
    """Which kind of quantization config a checkpoint carries."""

    NONE = "none"
    FP8 = "fp8"
    MODELOPT = "modelopt"
    COMPRESSED_TENSORS = "compressed-tensors"


class ModuleGroup(Enum):
    """Linears that the public recipes treat alike."""

    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERT = "shared_expert"
    HEAD = "head"
    MTP_ATTENTION = "mtp_attention"
    MTP_MLP = "mtp_mlp"
    MTP_EXPERTS = "mtp_experts"
    MTP_SHARED_EXPERT = "mtp_shared_expert"
    MTP_FC = "mtp_fc"

    @property
    def in_mtp(self) -> bool:
        """True for modules of the MTP head."""
        return self.value.startswith("mtp_")


_TRUNK_PATTERNS = (
    (re.compile(r"\.self_attn\.[qkvo]_proj\.weight$"), ModuleGroup.ATTENTION, ModuleGroup.MTP_ATTENTION),
    (
        re.compile(r"\.linear_attn\.(in_proj_qkvz?|in_proj_z|out_proj)\.weight$"),
        ModuleGroup.LINEAR_ATTENTION,
        None,
    ),
    (re.compile(r"\.mlp\.(gate|up|down)_proj\.weight$"), ModuleGroup.MLP, ModuleGroup.MTP_MLP),
    (re.compile(r"\.mlp\.experts\."), ModuleGroup.EXPERTS, ModuleGroup.MTP_EXPERTS),
    (
        re.compile(r"\.shared_expert\.(gate|up|down)_proj\.weight$"),
        ModuleGroup.SHARED_EXPERT,
        ModuleGroup.MTP_SHARED_EXPERT,
    ),
    (re.compile(r"^lm_head\.weight$"), ModuleGroup.HEAD, None),
    (re.compile(r"^mtp\.fc\.weight$"), None, ModuleGroup.MTP_FC),
)


def module_group(name: str) -> ModuleGroup | None:
    """The group of the linear that owns a weight; None for everything that is never quantized.

    Router gates, in_proj_a/b, convolutions, norms, embeddings and the vision tower have no group.
    """
    if "visual." in name:
        return None
    for pattern, trunk, mtp in _TRUNK_PATTERNS:
        if pattern.search(name):
            return mtp if name.startswith("mtp.") else trunk
    return None


@dataclass(frozen=True)
class Precision:
    """A recipe: the encoding of each group; whatever is not listed is stored as `base`.

    Attributes:
        name: for messages and test ids.
        dialect: which quantization config is written.
        base: BF16 or FP32.
        encodings: encoding of each quantized group.
        block: rows and columns of an FP8 block.
    """

    name: str
    dialect: Dialect = Dialect.NONE
    base: Encoding = Encoding.BF16
    encodings: Mapping[ModuleGroup, Encoding] = field(default_factory=dict, hash=False)
    block: tuple[int, int] = (16, 16)

    def encoding_of(self, name: str) -> Encoding:
        """The encoding of the tensor with this (unquantized) name."""
        group = module_group(name)
        return self.base if group is None else self.encodings.get(group, self.base)

    def with_block(self, rows: int, columns: int) -> Precision:
        """The same recipe with another FP8 block."""
        return replace(self, block=(rows, columns))

    def with_mtp_of(self, other: Precision) -> Precision:
        """The same trunk with the MTP encodings of another recipe."""
        trunk = {group: encoding for group, encoding in self.encodings.items() if not group.in_mtp}
        head = {group: encoding for group, encoding in other.encodings.items() if group.in_mtp}
        return replace(self, name=f"{self.name}+mtp_{other.name}", encodings=trunk | head)

    def quantizes(self, group: ModuleGroup) -> bool:
        """True when the group is stored in anything but plain floating point."""
        return self.encodings.get(group, self.base).quantized


_MIXERS = (ModuleGroup.ATTENTION, ModuleGroup.LINEAR_ATTENTION)
_MLPS = (ModuleGroup.MLP, ModuleGroup.EXPERTS, ModuleGroup.SHARED_EXPERT)
_MTP_LAYER = (
    ModuleGroup.MTP_ATTENTION,
    ModuleGroup.MTP_MLP,
    ModuleGroup.MTP_EXPERTS,
    ModuleGroup.MTP_SHARED_EXPERT,
)

BF16 = Precision("bf16")
FP32 = Precision("fp32", base=Encoding.FP32)
FP8_BLOCK = Precision(
    "fp8_block", Dialect.FP8, encodings=dict.fromkeys((*_MIXERS, *_MLPS, *_MTP_LAYER), Encoding.FP8_BLOCK)
)
"""The official FP8 releases: everything but lm_head, mtp.fc and the never-quantized; MTP layers too."""
FP8_BLOCK_EXPERTS = Precision(
    "fp8_block_experts",
    Dialect.FP8,
    encodings=dict.fromkeys((ModuleGroup.EXPERTS, ModuleGroup.MTP_EXPERTS), Encoding.FP8_BLOCK),
)
"""The 2.4T release: routed experts only, in the trunk and in the head."""
FP8_TENSOR = Precision(
    "fp8_tensor", Dialect.MODELOPT, encodings=dict.fromkeys((*_MIXERS, *_MLPS), Encoding.FP8_TENSOR)
)
FP8_CHANNEL = Precision(
    "fp8_channel",
    Dialect.COMPRESSED_TENSORS,
    encodings=dict.fromkeys((*_MIXERS, *_MLPS), Encoding.FP8_CHANNEL),
)
NVFP4_ROUTED = Precision(
    "nvfp4_routed",
    Dialect.MODELOPT,
    encodings=dict.fromkeys((ModuleGroup.MLP, ModuleGroup.EXPERTS), Encoding.NVFP4),
)
"""The first NVFP4 releases: routed experts only (a dense model: its MLPs), MTP in BF16."""
NVFP4_ROUTED_SHARED = Precision(
    "nvfp4_routed_shared", Dialect.MODELOPT, encodings=dict.fromkeys(_MLPS, Encoding.NVFP4)
)
NVFP4_MIXED = Precision(
    "nvfp4_mixed",
    Dialect.MODELOPT,
    encodings=dict.fromkeys(_MIXERS, Encoding.FP8_TENSOR)
    | dict.fromkeys((*_MLPS, ModuleGroup.HEAD), Encoding.NVFP4),
)
"""The 3.6 NVFP4 releases: FP8 mixers, NVFP4 MLPs and lm_head."""
NVFP4_COMPRESSED = Precision(
    "nvfp4_compressed",
    Dialect.COMPRESSED_TENSORS,
    encodings=dict.fromkeys((ModuleGroup.ATTENTION, *_MLPS), Encoding.NVFP4_COMPRESSED),
)
MTP_NVFP4 = Precision("nvfp4_mtp", Dialect.MODELOPT, encodings=dict.fromkeys(_MTP_LAYER, Encoding.NVFP4))
"""For `with_mtp_of`: the head's layer in ModelOpt's NVFP4."""
MTP_NVFP4_COMPRESSED = Precision(
    "nvfp4_compressed_mtp",
    Dialect.COMPRESSED_TENSORS,
    encodings=dict.fromkeys(_MTP_LAYER, Encoding.NVFP4_COMPRESSED),
)
"""For `with_mtp_of`: the head's layer in compressed-tensors' NVFP4."""

ALL_PRECISIONS = (
    BF16,
    FP32,
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    FP8_TENSOR,
    FP8_CHANNEL,
    NVFP4_ROUTED,
    NVFP4_ROUTED_SHARED,
    NVFP4_MIXED,
    NVFP4_COMPRESSED,
)


@dataclass(frozen=True)
class StoredTensor:
    """Name, safetensors dtype and shape of one tensor on disk."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * BYTES_PER_ELEMENT[self.dtype]


def stored_layout(
    name: str, shape: tuple[int, ...], precision: Precision, *, scale_inv_dtype: str = "BF16"
) -> tuple[StoredTensor, ...]:
    """What `encode_tensor` writes for a tensor, as names, dtypes and shapes only.

    Args:
        name: its unquantized name (`....weight`).
        shape: its logical shape.
        precision: the recipe.
        scale_inv_dtype: safetensors dtype of `weight_scale_inv`.
    """
    encoding = precision.encoding_of(name)
    if not encoding.quantized:
        return (StoredTensor(name, "BF16" if encoding is Encoding.BF16 else "F32", shape),)
    stem, (rows, columns) = name.removesuffix("weight"), shape
    whole = StoredTensor(name, "F8_E4M3", shape)
    packed = (rows, columns // 2)
    block_scale = StoredTensor(f"{stem}weight_scale", "F8_E4M3", (rows, columns // quantization.NVFP4_GROUP))
    input_scale = StoredTensor(f"{stem}input_scale", "F32", ())
    weight_only = (
        StoredTensor(name, "U8", packed),
        block_scale,
        StoredTensor(f"{stem}weight_scale_2", "F32", ()),
    )
    grid = (-(-rows // precision.block[0]), -(-columns // precision.block[1]))
    return {
        Encoding.FP8_BLOCK: (whole, StoredTensor(f"{stem}weight_scale_inv", scale_inv_dtype, grid)),
        Encoding.FP8_TENSOR: (whole, StoredTensor(f"{stem}weight_scale", "F32", ()), input_scale),
        Encoding.FP8_CHANNEL: (whole, StoredTensor(f"{stem}weight_scale", "F32", (rows, 1))),
        Encoding.NVFP4: (*weight_only, input_scale),
        Encoding.NVFP4_WEIGHT_ONLY: weight_only,
        Encoding.NVFP4_COMPRESSED: (
            StoredTensor(f"{stem}weight_packed", "U8", packed),
            block_scale,
            StoredTensor(f"{stem}weight_global_scale", "F32", (1,)),
            StoredTensor(f"{stem}input_global_scale", "F32", (1,)),
        ),
    }[encoding]


@dataclass(frozen=True)
class EncodedTensor:
    """One logical tensor on disk.

    Attributes:
        stored: every tensor written for it, by its name on disk, in its dtype on disk.
        value: float32, what those tensors stand for.
    """

    stored: Mapping[str, Tensor]
    value: Tensor


def encode_tensor(
    name: str,
    weight: Tensor,
    precision: Precision,
    *,
    scale_inv_dtype: str = "bfloat16",
    shared_scale: Tensor | None = None,
) -> EncodedTensor:
    """Encodes one float32 tensor as the recipe says.

    Args:
        name: its unquantized name (`....weight`).
        weight: float32.
        precision: the recipe.
        scale_inv_dtype: torch dtype name of `weight_scale_inv`.
        shared_scale: NVFP4 global scale that the members of a fused group share; None: its own.
    """
    import torch

    encoding = precision.encoding_of(name)
    if not encoding.quantized:
        stored = weight.to(torch.bfloat16 if encoding is Encoding.BF16 else torch.float32)
        return EncodedTensor({name: stored}, stored.float())
    stem = name.removesuffix("weight")
    activation = _activation_scale(name)
    if encoding is Encoding.FP8_BLOCK:
        fp8 = quantization.encode_fp8_block(weight, precision.block, getattr(torch, scale_inv_dtype))
        return EncodedTensor(
            {name: fp8.weight, f"{stem}weight_scale_inv": fp8.scale},
            quantization.decode_fp8_block(fp8, precision.block),
        )
    if encoding in (Encoding.FP8_TENSOR, Encoding.FP8_CHANNEL):
        per_tensor = encoding is Encoding.FP8_TENSOR
        fp8 = (
            quantization.encode_fp8_tensor(weight) if per_tensor else quantization.encode_fp8_channel(weight)
        )
        parts = {name: fp8.weight, f"{stem}weight_scale": fp8.scale}
        if per_tensor:
            parts[f"{stem}input_scale"] = torch.tensor(activation)
        return EncodedTensor(parts, quantization.decode_fp8(fp8))
    return _encode_nvfp4(name, weight, encoding, shared_scale)


def _encode_nvfp4(
    name: str, weight: Tensor, encoding: Encoding, shared_scale: Tensor | None
) -> EncodedTensor:
    import torch

    stem = name.removesuffix("weight")
    activation = _activation_scale(name) / 6
    if encoding is Encoding.NVFP4_COMPRESSED:
        compressed = quantization.encode_nvfp4_compressed(weight, shared_scale)
        stored = {
            f"{stem}weight_packed": compressed.weight_packed,
            f"{stem}weight_scale": compressed.weight_scale,
            f"{stem}weight_global_scale": compressed.weight_global_scale,
            f"{stem}input_global_scale": torch.tensor([1 / activation]),
        }
        return EncodedTensor(stored, quantization.decode_nvfp4_compressed(compressed))
    encoded = quantization.encode_nvfp4(weight, shared_scale)
    stored = {
        name: encoded.packed,
        f"{stem}weight_scale": encoded.block_scale,
        f"{stem}weight_scale_2": encoded.global_scale,
    }
    if encoding is Encoding.NVFP4:
        stored[f"{stem}input_scale"] = torch.tensor(activation)
    return EncodedTensor(stored, quantization.decode_nvfp4(encoded))


def _activation_scale(name: str) -> float:
    """A plausible static activation scale (amax of a few units over 448), different for every module."""
    return (2.0 + zlib.crc32(name.encode()) % 1000 / 100) / quantization.E4M3_MAX
