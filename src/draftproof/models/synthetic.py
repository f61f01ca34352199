"""Tensors of a model that was never trained, made on the device: real names, shapes and precisions.

Weights have a standard deviation of 0.02 whatever their precision; scales are positive; norms are near one.
Two readers with one seed give the same values for the same sequence of reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from draftproof.architecture.spec import ModelSpec
from draftproof.architecture.stored_plan import Storage, expected_tensors
from draftproof.architecture.tensor_plan import ExpertLayouts, PlannedTensor, plan_tensors
from draftproof.checkpoint.header import TensorEntry

STANDARD_DEVIATION = 0.02
E2M1_RMS = 2.926
"""Root mean square of the sixteen e2m1 values, each as likely as any other."""
SCALE_SPREAD = (0.5, 1.5)
"""Block scales are uniform between these, times what gives the standard deviation."""
_SCALE_RMS = 1.0408
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
_SLICE = 2**28
"""Elements that are made at a time: random numbers are float32 before they are anything else."""


def synthetic_tensors(
    spec: ModelSpec, layouts: ExpertLayouts, storage_of: Callable[[PlannedTensor], Storage]
) -> Mapping[str, TensorEntry]:
    """The headers of every tensor of a model, as if it lay on disk.

    Args:
        spec: the model.
        layouts: how its experts lie.
        storage_of: how each linear is stored.
    """
    entries = {}
    for expected in expected_tensors(plan_tensors(spec, layouts), storage_of):
        # Tensors that a release keeps in any plain type are BF16 here; scales in their first type.
        dtype = "BF16" if "BF16" in expected.dtypes and not _is_scale(expected.name) else expected.dtypes[0]
        size = _BYTES[dtype]
        for length in expected.shape:
            size *= length
        entries[expected.name] = TensorEntry(expected.name, dtype, expected.shape, "", 0, size)
    return entries


def total_bytes(entries: Iterable[TensorEntry]) -> int:
    """Bytes of all tensors, as stored."""
    return sum(entry.nbytes for entry in entries)


class SyntheticReader:
    """Fabricates tensors (`account.TensorReader`).

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def read(self, entry: TensorEntry, device: torch.device) -> Tensor:
        """One tensor."""
        return self._fabricate(entry, entry.shape, device)

    def read_stack(self, entries: Sequence[TensorEntry], device: torch.device) -> Tensor:
        """Many tensors at once, as fast as one."""
        return self._fabricate(entries[0], (len(entries), *entries[0].shape), device)

    def close(self) -> None:
        """Nothing is held."""

    def _fabricate(self, entry: TensorEntry, shape: Sequence[int], device: torch.device) -> Tensor:
        generator = self._generator(device)
        name = entry.name
        if entry.dtype == "U8":
            return torch.randint(0, 256, tuple(shape), dtype=torch.uint8, device=device, generator=generator)
        if _is_scale(name):
            low, high = SCALE_SPREAD
            values = torch.empty(tuple(shape), device=device).uniform_(low, high, generator=generator)
            return (values * _scale_level(entry)).to(_TYPES[entry.dtype])
        if entry.dtype == "F8_E4M3":
            return self._normal(shape, 1.0, _TYPES[entry.dtype], device)
        values = self._normal(shape, STANDARD_DEVIATION, _TYPES[entry.dtype], device)
        # The gated norm's weight is a factor; every other norm's is an offset from one.
        return values.add_(1.0) if name.endswith("linear_attn.norm.weight") else values

    def _normal(
        self, shape: Sequence[int], deviation: float, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        values = torch.empty(tuple(shape), dtype=dtype, device=device)
        if dtype is not torch.float8_e4m3fn:
            return values.normal_(0.0, deviation, generator=self._generator(device))
        for part in torch.split(values.view(-1), _SLICE):
            wide = torch.empty(part.shape, device=device)
            part.copy_(wide.normal_(0.0, deviation, generator=self._generator(device)))
        return values

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


_TYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
}


def _is_scale(name: str) -> bool:
    return name.rpartition(".")[2].startswith(("weight_scale", "weight_global_scale", "input_"))


def _scale_level(entry: TensorEntry) -> float:
    """The middle of a scale's values, so that the weights have the standard deviation."""
    leaf = entry.name.rpartition(".")[2]
    if leaf == "weight_global_scale":
        # compressed-tensors keeps the divisor.
        return E2M1_RMS * _SCALE_RMS / STANDARD_DEVIATION
    if leaf == "weight_scale_2":
        return STANDARD_DEVIATION / (E2M1_RMS * _SCALE_RMS)
    if entry.dtype == "F8_E4M3":
        return 1.0
    return STANDARD_DEVIATION
