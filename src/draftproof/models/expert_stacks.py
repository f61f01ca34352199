"""One layer's routed experts as packed blocks: all experts of a projection are read and packed at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import torch

from draftproof.architecture.spec import MoeSpec
from draftproof.errors import AccountingError, UnsupportedRequest
from draftproof.kernels.dequantize.reference import NVFP4_BLOCK, dequantize_fp8_block
from draftproof.kernels.packed_weights.formats import SCALE_COLUMNS, PackedExperts, PackedMatrix
from draftproof.kernels.packed_weights.packing import (
    pack_dense,
    pack_experts,
    pack_fp8,
    pack_fp8_blocks,
    pack_nvfp4,
)
from draftproof.models.account import TensorAccount
from draftproof.models.stored_linear import (
    DENSE_DTYPES,
    block_size,
    checked_scale,
    skip_unused_scales,
)

PART = 64
"""Experts that are packed at a time."""


def load_packed_experts(account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec) -> PackedExperts:
    """Load the experts below `prefix`.

    Args:
        account: the checkpoint.
        prefix: of their names, up to "experts.".
        hidden: width of their input and output.
        spec: how many and how wide.

    Raises:
        AccountingError: a tensor is missing, has another shape, or experts are stored differently.
        UnsupportedRequest: a precision that is recognised but not loaded.
    """
    count, width = spec.num_experts, spec.intermediate_size
    parts = [range(begin, min(begin + PART, count)) for begin in range(0, count, PART)]
    # Fused: all experts in one tensor.
    if account.has(f"{prefix}gate_up_proj"):
        both = account.take(f"{prefix}gate_up_proj", (count, 2 * width, hidden))
        down = account.take(f"{prefix}down_proj", (count, hidden, width))

        def fused(part: range) -> PackedExperts:
            some = slice(part[0], part[-1] + 1)
            gate, up = both[some, :width], both[some, width:]
            return pack_experts(pack_dense(gate), pack_dense(up), pack_dense(down[some]))

        return _gathered(((fused(part), part[0]) for part in parts), count)
    shapes = (("gate", (width, hidden)), ("up", (width, hidden)), ("down", (hidden, width)))

    def read(part: range) -> PackedExperts:
        return pack_experts(
            *(
                _read_stack(account, [f"{prefix}{expert}.{name}_proj" for expert in part], shape)
                for name, shape in shapes
            )
        )

    return _gathered(((read(part), part[0]) for part in parts), count)


def _gathered(parts: Iterable[tuple[PackedExperts, int]], count: int) -> PackedExperts:
    """Parts with the numbers of their first experts as one, filled in as they come: packing needs several
    times the memory of what it packs.

    Raises:
        AccountingError: parts are stored differently.
    """
    whole: PackedExperts | None = None
    for part, first in parts:
        names = [each.name for each in fields(part) if isinstance(getattr(part, each.name), torch.Tensor)]
        if whole is None:
            room = {
                name: getattr(part, name).new_empty(count, *getattr(part, name).shape[1:]) for name in names
            }
            whole = replace(part, **room)
        if part.format is not whole.format or any(getattr(whole, name) is None for name in names):
            raise AccountingError(
                f"experts {first} and on are stored as {part.format.value}, those before as "
                f"{whole.format.value}"
            )
        for name in names:
            getattr(whole, name)[first : first + part.experts] = getattr(part, name)
    assert whole is not None
    return whole


def _read_stack(account: TensorAccount, modules: Sequence[str], shape: tuple[int, int]) -> PackedMatrix:
    """One projection of all experts, in the precision of the first; the others must have the same."""
    packed = _quantized_or_dense(account, modules, shape)
    for module in modules:
        skip_unused_scales(account, module)
    return packed


def _quantized_or_dense(
    account: TensorAccount, modules: Sequence[str], shape: tuple[int, int]
) -> PackedMatrix:
    rows, columns = shape

    def leaves(leaf: str) -> list[str]:
        return [f"{module}.{leaf}" for module in modules]

    halves, groups = (rows, columns // 2), (rows, columns // NVFP4_BLOCK)
    if account.has(f"{modules[0]}.weight_packed"):
        return pack_nvfp4(
            account.take_stack(leaves("weight_packed"), halves),
            _scales(account, leaves("weight_scale"), groups),
            # compressed-tensors stores the divisor, ModelOpt the multiplier.
            _scalars(account, leaves("weight_global_scale")).reciprocal(),
        )
    entry = account.entry(f"{modules[0]}.weight")
    if entry.dtype in DENSE_DTYPES:
        return pack_dense(account.take_stack(leaves("weight"), shape))
    if entry.dtype == "U8":
        return pack_nvfp4(
            account.take_stack(leaves("weight"), halves),
            _scales(account, leaves("weight_scale"), groups),
            _scalars(account, leaves("weight_scale_2")),
        )
    if entry.dtype == "F8_E4M3":
        inverse = account.has(f"{modules[0]}.weight_scale_inv")
        return _fp8(account, modules, "weight_scale_inv" if inverse else "weight_scale", shape)
    raise UnsupportedRequest(
        f"tensor {entry.name} has dtype {entry.dtype}, a precision that experts are not packed from",
        "Packed are BF16, FP16, FP32, FP8 and NVFP4 (ModelOpt, compressed-tensors).",
    )


def _fp8(account: TensorAccount, modules: Sequence[str], leaf: str, shape: tuple[int, int]) -> PackedMatrix:
    names = [f"{module}.{leaf}" for module in modules]
    stored = tuple(account.entry(names[0]).shape)
    scale = _scales(account, names, stored)
    weight = account.take_stack([f"{module}.weight" for module in modules], shape)
    if len(stored) < 2 or stored[1] == 1:
        if scale[0].numel() not in (1, shape[0]):
            raise AccountingError(f"tensor {names[0]} holds {scale[0].numel()} scales for {shape[0]} rows")
        per_row = scale.float().reshape(len(modules), -1).expand(-1, shape[0])
        return pack_fp8(weight, per_row)
    block = (block_size(shape[0], stored[0]), block_size(shape[1], stored[1]))
    if block == (SCALE_COLUMNS, SCALE_COLUMNS):
        return pack_fp8_blocks(weight, scale)
    return pack_dense(
        torch.stack(
            [
                dequantize_fp8_block(one, its_scale, block).bfloat16()
                for one, its_scale in zip(weight, scale, strict=True)
            ]
        )
    )


def _scales(account: TensorAccount, names: Sequence[str], shape: tuple[int, ...]) -> torch.Tensor:
    """[names, *shape], each checked at once; an impossible one is named by the first tensor of the stack."""
    return checked_scale(account.take_stack(names, shape), f"{names[0]} or one of its {len(names)} peers")


def _scalars(account: TensorAccount, names: Sequence[str]) -> torch.Tensor:
    """[names] float32 global scales; none may be zero."""
    scale = _scales(account, names, tuple(account.entry(names[0]).shape)).float().reshape(len(names), -1)
    if scale.shape[1] != 1 or bool((scale == 0).any()):
        raise AccountingError(
            f"tensor {names[0]} or one of its {len(names)} peers is not one positive scale",
            "The checkpoint is damaged; fetch it again.",
        )
    return scale.squeeze(1)
