"""The tensors on disk that a planned tensor becomes, given how it is stored: names, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, TensorPlan
from draftproof.checkpoint.precision import NVFP4_GROUP, Precision

_FLOATS = ("BF16", "F16", "F32")
_SCALES = ("F32", "BF16")
_PLAIN_DTYPES = {
    Precision.BF16: ("BF16",),
    Precision.FP16: ("F16",),
    Precision.FP32: ("F32",),
}


@dataclass(frozen=True)
class Storage:
    """How one module is stored.

    Attributes:
        precision: of the weight.
        activation_scale: a static scale of the activations lies beside it.
        block: rows and columns of an FP8 block.
    """

    precision: Precision
    activation_scale: bool = False
    block: tuple[int, int] = (128, 128)


class ExpectedTensor(NamedTuple):
    """One tensor on disk.

    Attributes:
        name: full name.
        shape: as stored.
        dtypes: any of these.
        planned: the tensor of the plan that it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    planned: PlannedTensor


def expected_tensors(
    plan: TensorPlan, storage_of: Callable[[PlannedTensor], Storage]
) -> Iterator[ExpectedTensor]:
    """Every tensor that the files must hold, companions included.

    Args:
        plan: the architecture's tensors.
        storage_of: how a linear is stored; other tensors are plain floating point in any dtype (A_log and the
            gated norms are F32 in some releases and BF16 in others).

    Raises:
        ValueError: a precision whose tensors are only recognised, never planned.
    """
    for planned in plan.tensors:
        if planned.is_linear:
            yield from stored_tensors(planned, storage_of(planned))
        else:
            yield ExpectedTensor(planned.name, planned.shape, _FLOATS, planned)


def stored_tensors(planned: PlannedTensor, storage: Storage) -> Iterator[ExpectedTensor]:
    """The tensors of one linear; errors as `expected_tensors`."""
    for leaf, shape, dtypes in _parts(planned.shape, storage):
        name = planned.name if leaf == "weight" else f"{planned.module}.{leaf}"
        yield ExpectedTensor(name, shape, dtypes, planned)


_Part = tuple[str, tuple[int, ...], tuple[str, ...]]


def _parts(shape: tuple[int, ...], storage: Storage) -> Iterator[_Part]:
    precision = storage.precision
    if precision in _PLAIN_DTYPES:
        yield "weight", shape, _PLAIN_DTYPES[precision]
        return
    if len(shape) != 2:
        raise ValueError(f"a stack of matrices {list(shape)} is not planned in {precision.value}")
    rows, columns = shape
    halves, groups = (rows, columns // 2), (rows, columns // NVFP4_GROUP)
    if precision is Precision.FP8_BLOCK:
        blocks = (-(-rows // storage.block[0]), -(-columns // storage.block[1]))
        yield "weight", shape, ("F8_E4M3",)
        yield "weight_scale_inv", blocks, _SCALES
    elif precision is Precision.FP8_TENSOR:
        yield "weight", shape, ("F8_E4M3",)
        yield "weight_scale", (), _SCALES
    elif precision is Precision.FP8_CHANNEL:
        yield "weight", shape, ("F8_E4M3",)
        yield "weight_scale", (rows, 1), _SCALES
    elif precision is Precision.NVFP4_MODELOPT:
        yield "weight", halves, ("U8",)
        yield "weight_scale", groups, ("F8_E4M3",)
        yield "weight_scale_2", (), ("F32",)
    elif precision is Precision.NVFP4_COMPRESSED:
        yield "weight_packed", halves, ("U8",)
        yield "weight_scale", groups, ("F8_E4M3",)
        yield "weight_global_scale", (1,), ("F32",)
    else:
        raise ValueError(f"the tensors of {precision.value} are recognised, never planned")
    if storage.activation_scale:
        if precision is Precision.NVFP4_COMPRESSED:
            yield "input_global_scale", (1,), ("F32",)
        else:
            yield "input_scale", (), ("F32",)


def cache_scales(plan: TensorPlan) -> Iterator[str]:
    """Names of the key and value cache scales that some exports add to the trunk; others have none."""
    for planned in plan.tensors:
        if planned.part is ModelPart.TRUNK:
            for leaf in ("k", "v"):
                if planned.name.endswith(f".self_attn.{leaf}_proj.weight"):
                    yield f"{planned.module}.{leaf}_scale"
