"""From stored tensors to projections, whatever precision they have on disk and in memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from draftproof.checkpoint.header import TensorEntry
from draftproof.errors import AccountingError, UnsupportedRequest
from draftproof.kernels.dequantize.reference import NVFP4_BLOCK, dequantize_fp8_block, dequantize_nvfp4
from draftproof.kernels.experts_step.reference import experts_of_prompt
from draftproof.layers.linear import (
    Fp8BlockLinear,
    Fp8ScaledLinear,
    Linear,
    Nvfp4Linear,
)
from draftproof.layers.packed_mixture import ExpertsOfPrompt
from draftproof.models.account import TensorAccount
from draftproof.models.weight_storage import WeightStorage

ACTIVATION_SCALE = "activation scale (activations are not quantised)"
CACHE_SCALE = "key/value cache scale (the cache is not quantised)"
DENSE_DTYPES = ("BF16", "F16", "F32")


class DenseBackend(Enum):
    """What multiplies by weights that are kept as real numbers."""

    TORCH = "torch"
    """torch.mm in the compute dtype."""
    FBGEMM_HALF = "fbgemm-half"
    """Half-precision storage with float32 arithmetic where that is exact; torch.mm elsewhere."""
    PACKED_BLOCKS = "packed-blocks"
    """The blocks that the kernels of a device step read, for every precision; goes with packed storage."""


@dataclass(frozen=True)
class LoadTarget:
    """What parameters are made for.

    Attributes:
        dtype: compute dtype.
        storage: of quantised weights.
        backend: of dense ones.
        experts_of_prompt: what carries out routed experts of packed blocks.
    """

    dtype: torch.dtype
    storage: WeightStorage
    backend: DenseBackend
    experts_of_prompt: ExpertsOfPrompt = experts_of_prompt


@dataclass(frozen=True)
class Matrix:
    """A stored matrix as real numbers: values * scale.

    Attributes:
        values: [out, in] float32, or as stored where the backend packs blocks.
        scale: [out] float32; None for ones. Kept apart because the values of a quantised matrix are short
            binary numbers, and their product with a scale is not.
        bias: [out] or None.
    """

    values: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None

    def select_rows(self, order: Tensor) -> Matrix:
        """The same matrix with its outputs in another order."""
        return Matrix(
            self.values[order],
            None if self.scale is None else self.scale[order],
            None if self.bias is None else self.bias[order],
        )


Stored = Matrix | Linear
"""A matrix as real numbers, or a projection that keeps its stored form."""


def read_matrix(account: TensorAccount, module: str, shape: tuple[int, int], target: LoadTarget) -> Stored:
    """Read one matrix; its precision is what the tensors on disk say.

    Args:
        account: the checkpoint.
        module: name without `.weight`.
        shape: [out, in] that the architecture asks for.
        target: what for.

    Raises:
        AccountingError: a tensor is missing, has another shape, or is a scale that cannot be.
        UnsupportedRequest: a precision that is recognised but not loaded.
    """
    stored = _quantized_or_dense(account, module, shape, target)
    skip_unused_scales(account, module)
    if account.has(f"{module}.bias"):
        if not isinstance(stored, Matrix):
            raise UnsupportedRequest(f"{module} has a bias and packed weights", "Load it with dense weights.")
        return Matrix(stored.values, stored.scale, account.take(f"{module}.bias", shape[:1]).float())
    return stored


def skip_unused_scales(account: TensorAccount, module: str) -> None:
    """Leave out scales of activations and of the cache, which stay in the compute dtype."""
    # The loops hold literal names: they are read as source when a checkpoint is verified for this engine.
    for scale in ("input_scale", "input_global_scale"):
        account.skip(f"{module}.{scale}", ACTIVATION_SCALE)
    for scale in ("k_scale", "v_scale"):
        account.skip(f"{module}.{scale}", CACHE_SCALE)


def _quantized_or_dense(
    account: TensorAccount, module: str, shape: tuple[int, int], target: LoadTarget
) -> Stored:
    storage = target.storage
    if account.has(f"{module}.weight_packed"):
        entry = account.entry(f"{module}.weight_packed")
        if entry.dtype != "U8":
            raise _not_loaded(entry)
        # compressed-tensors stores the divisor, ModelOpt the multiplier.
        return _nvfp4(
            account, entry, shape, _scalar(account, f"{module}.weight_global_scale").reciprocal(), storage
        )
    entry = account.entry(f"{module}.weight")
    if entry.dtype in DENSE_DTYPES:
        values = account.take(entry.name, shape)
        return Matrix(values if target.backend is DenseBackend.PACKED_BLOCKS else values.float())
    if entry.dtype == "U8":
        return _nvfp4(account, entry, shape, _scalar(account, f"{module}.weight_scale_2"), storage)
    if entry.dtype == "F8_E4M3":
        # Qwen's own block scales are called weight_scale_inv; ModelOpt's FP8_PB_WO calls them weight_scale.
        if account.has(f"{module}.weight_scale_inv"):
            return _fp8_block(account, module, "weight_scale_inv", shape, storage)
        scale = account.entry(f"{module}.weight_scale").shape
        if len(scale) == 2 and scale[1] > 1:
            return _fp8_block(account, module, "weight_scale", shape, storage)
        return _fp8_scaled(account, module, shape, storage)
    raise _not_loaded(entry)


def _nvfp4(
    account: TensorAccount,
    entry: TensorEntry,
    shape: tuple[int, int],
    global_scale: Tensor,
    storage: WeightStorage,
) -> Stored:
    rows, columns = shape
    packed = account.take(entry.name, (rows, columns // 2))
    name = f"{entry.name.rpartition('.')[0]}.weight_scale"
    block_scale = checked_scale(account.take(name, (rows, columns // NVFP4_BLOCK)), name)
    if storage is WeightStorage.PACKED:
        return Nvfp4Linear(packed, block_scale, global_scale)
    return Matrix(
        dequantize_nvfp4(packed, block_scale, torch.ones_like(global_scale)), global_scale.expand(rows)
    )


def _fp8_block(
    account: TensorAccount, module: str, scale_name: str, shape: tuple[int, int], storage: WeightStorage
) -> Stored:
    entry = account.entry(f"{module}.{scale_name}")
    if len(entry.shape) != 2:
        raise AccountingError(
            f"tensor {entry.name} has shape {list(entry.shape)}, block scales have two dimensions"
        )
    block = (block_size(shape[0], entry.shape[0]), block_size(shape[1], entry.shape[1]))
    scale = checked_scale(account.take(entry.name), entry.name)
    weight = account.take(f"{module}.weight", shape)
    if storage is WeightStorage.PACKED:
        return Fp8BlockLinear(weight, scale, block)
    return Matrix(dequantize_fp8_block(weight, scale, block))


def _fp8_scaled(
    account: TensorAccount, module: str, shape: tuple[int, int], storage: WeightStorage
) -> Stored:
    name = f"{module}.weight_scale"
    scale = checked_scale(account.take(name), name).float().reshape(-1)
    if scale.numel() not in (1, shape[0]):
        raise AccountingError(f"tensor {name} holds {scale.numel()} scales for {shape[0]} rows")
    weight = account.take(f"{module}.weight", shape)
    if storage is WeightStorage.PACKED:
        return Fp8ScaledLinear(weight, scale)
    return Matrix(weight.float(), scale.expand(shape[0]))


def block_size(size: int, blocks: int) -> int:
    """Width of a block: 128 in released checkpoints; smaller powers of two when 128 does not give this
    count."""
    for width in (128, 64, 32, 16):
        if -(-size // width) == blocks:
            return width
    raise AccountingError(
        f"{blocks} block scales do not cover {size} elements in blocks of 128, 64, 32 or 16"
    )


def _scalar(account: TensorAccount, name: str) -> Tensor:
    value = account.take(name)
    if value.numel() != 1:
        raise AccountingError(f"tensor {name} holds {value.numel()} values, one is expected")
    return checked_scale(value, name).float().reshape(())


def checked_scale(scale: Tensor, name: str) -> Tensor:
    """A scale that is negative or not finite makes NaN or garbage of its weights: refuse it by name.

    A zero block scale is legitimate (a block of zeros); a zero global scale is not.
    """
    values = scale.float()
    impossible = not bool(torch.isfinite(values).all()) or bool((values < 0).any())
    if impossible or (values.numel() == 1 and float(values) == 0):
        raise AccountingError(
            f"tensor {name} holds a zero, negative or non-finite scale",
            "The checkpoint is damaged; fetch it again.",
        )
    return scale


def _not_loaded(entry: TensorEntry) -> UnsupportedRequest:
    return UnsupportedRequest(
        f"tensor {entry.name} has dtype {entry.dtype}, a precision this engine does not load",
        "Loaded are BF16, FP16, FP32, FP8 (block, tensor, channel) and NVFP4 (ModelOpt, compressed-tensors).",
    )
