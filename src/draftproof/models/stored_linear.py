"""From the tensors of one stored matrix to a `Linear`, whatever precision they have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from draftproof.checkpoint.header import TensorEntry
from draftproof.errors import AccountingError, UnsupportedRequest
from draftproof.layers.linear import DenseLinear, Fp8BlockLinear, Fp8ScaledLinear, Linear, Nvfp4Linear
from draftproof.models.account import TensorAccount

ACTIVATION_SCALE = "activation scale (activations are not quantised)"
CACHE_SCALE = "key/value cache scale (the cache is not quantised)"
DENSE_DTYPES = ("BF16", "F16", "F32")


class WeightStorage(Enum):
    """How quantised weights are kept after loading."""

    DENSE = "dense"
    """As real numbers in the compute dtype: fast on a CPU."""
    PACKED = "packed"
    """As stored: a quarter of the memory, unpacked at every use."""


@dataclass(frozen=True)
class LoadTarget:
    """What parameters are made for.

    Attributes:
        dtype: compute dtype.
        storage: of quantised weights.
    """

    dtype: torch.dtype
    storage: WeightStorage


def load_linear(account: TensorAccount, module: str, shape: tuple[int, int], target: LoadTarget) -> Linear:
    """Load one projection; its precision is what the tensors on disk say.

    Args:
        account: the checkpoint.
        module: name without `.weight`.
        shape: [out, in] that the architecture asks for.
        target: compute dtype and storage.

    Raises:
        AccountingError: a tensor is missing or has another shape.
        UnsupportedRequest: a precision that is recognised but not loaded.
    """
    stored = _packed_linear(account, module, shape, target.dtype)
    linear = stored if target.storage is WeightStorage.PACKED else DenseLinear(stored.dense_weight())
    for scale in ("input_scale", "input_global_scale"):
        account.skip(f"{module}.{scale}", ACTIVATION_SCALE)
    for scale in ("k_scale", "v_scale"):
        account.skip(f"{module}.{scale}", CACHE_SCALE)
    if account.has(f"{module}.bias"):
        bias = account.take(f"{module}.bias", shape[:1]).to(target.dtype)
        return DenseLinear(linear.dense_weight(), bias)
    return linear


def _packed_linear(account: TensorAccount, module: str, shape: tuple[int, int], dtype: torch.dtype) -> Linear:
    rows, columns = shape
    if account.has(f"{module}.weight_packed"):
        return _compressed_nvfp4(account, module, shape, dtype)
    entry = account.entry(f"{module}.weight")
    if entry.dtype in DENSE_DTYPES:
        return DenseLinear(account.take(entry.name, shape).to(dtype))
    if entry.dtype == "U8":
        packed = account.take(entry.name, (rows, columns // 2))
        block_scale = _block_scale(account, module, shape)
        return Nvfp4Linear(packed, block_scale, _scalar(account, f"{module}.weight_scale_2"), dtype)
    if entry.dtype == "F8_E4M3":
        return _fp8(account, module, shape, dtype)
    raise _not_loaded(entry)


def _compressed_nvfp4(account: TensorAccount, module: str, shape: tuple[int, int], dtype: torch.dtype) -> Linear:
    entry = account.entry(f"{module}.weight_packed")
    if entry.dtype != "U8":
        raise _not_loaded(entry)
    packed = account.take(entry.name, (shape[0], shape[1] // 2))
    block_scale = _block_scale(account, module, shape)
    # compressed-tensors stores the divisor, ModelOpt the multiplier.
    divisor = _scalar(account, f"{module}.weight_global_scale")
    return Nvfp4Linear(packed, block_scale, divisor.reciprocal(), dtype)


def _fp8(account: TensorAccount, module: str, shape: tuple[int, int], dtype: torch.dtype) -> Linear:
    rows, columns = shape
    if account.has(f"{module}.weight_scale_inv"):
        entry = account.entry(f"{module}.weight_scale_inv")
        if len(entry.shape) != 2:
            raise AccountingError(f"tensor {entry.name} has shape {list(entry.shape)}, block scales have two dimensions")
        block = (_block_size(rows, entry.shape[0]), _block_size(columns, entry.shape[1]))
        scale = account.take(entry.name)
        return Fp8BlockLinear(account.take(f"{module}.weight", shape), _checked(scale, entry.name), block, dtype)
    name = f"{module}.weight_scale"
    scale = _checked(account.take(name), name)
    if scale.numel() not in (1, rows):
        raise AccountingError(f"tensor {name} holds {scale.numel()} scales for {rows} rows")
    return Fp8ScaledLinear(account.take(f"{module}.weight", shape), scale, dtype)


def _block_size(size: int, blocks: int) -> int:
    """Width of a block: 128 in released checkpoints; smaller powers of two when 128 does not give this count."""
    for width in (128, 64, 32, 16):
        if -(-size // width) == blocks:
            return width
    raise AccountingError(f"{blocks} block scales do not cover {size} elements in blocks of 128, 64, 32 or 16")


def _block_scale(account: TensorAccount, module: str, shape: tuple[int, int]) -> Tensor:
    name = f"{module}.weight_scale"
    scale = account.take(name, (shape[0], shape[1] // 16))
    _checked(scale, name)
    return scale


def _scalar(account: TensorAccount, name: str) -> Tensor:
    value = account.take(name)
    if value.numel() != 1:
        raise AccountingError(f"tensor {name} holds {value.numel()} values, one is expected")
    return _checked(value, name).float().reshape(())


def _checked(scale: Tensor, name: str) -> Tensor:
    """A scale that is negative or not finite makes NaN or garbage of its weights: refuse it by name.

    A zero block scale is legitimate (a block of zeros); a zero global scale is not.
    """
    values = scale.float()
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()) or (values.numel() == 1 and float(values) == 0):
        raise AccountingError(
            f"tensor {name} holds a zero, negative or non-finite scale", "The checkpoint is damaged; fetch it again."
        )
    return scale


def _not_loaded(entry: TensorEntry) -> UnsupportedRequest:
    return UnsupportedRequest(
        f"tensor {entry.name} has dtype {entry.dtype}, a precision this engine does not load",
        "Loaded are BF16, FP16, FP32, FP8 (block, tensor, channel) and NVFP4 (ModelOpt, compressed-tensors).",
    )
