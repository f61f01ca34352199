"""What a stack asks of the package compressed-tensors: its enumerations, and a scheme read from a config."""

from __future__ import annotations

from enum import Enum
from typing import Any


class QuantizationType(str, Enum):  # noqa: UP042 - as in the package
    """What the elements are."""

    INT = "int"
    FLOAT = "float"


class QuantizationStrategy(str, Enum):  # noqa: UP042 - as in the package
    """What one scale is for."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    GROUP = "group"
    BLOCK = "block"
    TOKEN = "token"
    TENSOR_GROUP = "tensor_group"
    ATTN_HEAD = "attn_head"


class ActivationOrdering(str, Enum):  # noqa: UP042 - as in the package
    """In which order groups are made."""

    GROUP = "group"
    WEIGHT = "weight"
    DYNAMIC = "dynamic"
    STATIC = "static"


class CompressionFormat(Enum):
    """How packed weights lie on disk."""

    dense = "dense"
    sparse_bitmask = "sparse-bitmask"
    sparse_24_bitmask = "sparse-24-bitmask"
    int_quantized = "int-quantized"
    float_quantized = "float-quantized"
    naive_quantized = "naive-quantized"
    pack_quantized = "pack-quantized"
    marlin_24 = "marlin-24"
    mixed_precision = "mixed-precision"
    nvfp4_pack_quantized = "nvfp4-pack-quantized"
    mxfp4_pack_quantized = "mxfp4-pack-quantized"


class SparsityStructure(Enum):
    """How zeros lie."""

    TWO_FOUR = "2:4"
    UNSTRUCTURED = "unstructured"
    ZERO_ZERO = "0:0"


class QuantizationArgs:
    """A scheme of weights or activations."""

    def __init__(self, **values: Any) -> None:
        self.num_bits = values.get("num_bits", 8)
        self.type = QuantizationType(values.get("type", "int"))
        self.symmetric = values.get("symmetric", True)
        self.group_size = values.get("group_size")
        self.block_structure = values.get("block_structure")
        self.dynamic = values.get("dynamic", False)
        self.observer = values.get("observer")
        self.scale_dtype = values.get("scale_dtype")
        self.zp_dtype = values.get("zp_dtype")
        self.strategy = self._strategy(values.get("strategy"))
        order = values.get("actorder")
        self.actorder = ActivationOrdering(order) if isinstance(order, str) else None

    def _strategy(self, named: Any) -> Any:
        if named is not None:
            return QuantizationStrategy(named)
        if self.group_size is None:
            return QuantizationStrategy.TENSOR
        return QuantizationStrategy.GROUP if self.group_size > 0 else QuantizationStrategy.CHANNEL

    @classmethod
    def model_validate(cls, content: Any) -> QuantizationArgs:
        if content is None:
            raise ValueError("a scheme without weights")
        return content if isinstance(content, QuantizationArgs) else cls(**content)


class SparsityCompressionConfig:
    """A sparsity section; no head has one."""

    def __init__(self, **values: Any) -> None:
        self.format = values.get("format")
        self.targets = values.get("targets") or []
        self.ignore = values.get("ignore") or []

    @classmethod
    def model_validate(cls, content: Any) -> SparsityCompressionConfig:
        return cls(**content)
