"""Compiled kernels as objects that launch on torch's current stream."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.errors import EngineFault
from draftproof.kernels.cuda.compiler import bindings, cache_folder, compile_cubin, describe

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory, static and dynamic together, that needs no permission."""

Argument = Tensor | int | float | None
"""A tensor is passed as its address, an int as a C int, a float as a C float, None as a null pointer."""


class Kernel:
    """One function of a compiled module.

    Attributes:
        name: of the function.
        registers: of a thread.
        local_bytes: spilled or indexed local memory of a thread; a kernel that is meant to be fast has 0.
    """

    def __init__(self, function: Any, name: str) -> None:
        self._driver = bindings("driver")
        self._function = function
        self.name = name
        attribute = self._driver.CUfunction_attribute
        self._shared_bytes = STATIC_SHARED_BYTES - self._attribute(
            attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        )
        self.registers = self._attribute(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local_bytes = self._attribute(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)

    def allow_shared(self, size: int) -> None:
        """Permit `size` bytes of dynamic shared memory; call it outside of graph captures.

        Raises:
            EngineFault: more than the GPU has.
        """
        if size <= self._shared_bytes:
            return
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(
            self._driver.cuFuncSetAttribute(self._function, attribute, size),
            f"{self.name}: {size} bytes of shared memory",
        )
        self._shared_bytes = size

    def launch(
        self,
        grid: Sequence[int],
        threads: int,
        arguments: Sequence[Argument],
        shared_bytes: int = 0,
        overlap: bool = True,
    ) -> None:
        """Launch on the current stream.

        Args:
            grid: blocks in x, y and z; missing ones are 1.
            threads: of a block.
            arguments: in the order of the kernel's parameters.
            shared_bytes: dynamic shared memory.
            overlap: programmatic dependent launch: the kernel may start before its predecessor has ended and
                must execute griddepcontrol.wait before it touches what another kernel of the step wrote.
        """
        self.allow_shared(shared_bytes)
        driver = self._driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.hStream = torch.cuda.current_stream().cuda_stream
        if overlap:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs = [attribute]
            config.numAttrs = 1
        parameters = as_parameters(arguments)
        _checked(driver.cuLaunchKernelEx(config, self._function, parameters, 0), f"{self.name}: launch")

    def _attribute(self, attribute: Any) -> int:
        value: int = _checked(self._driver.cuFuncGetAttribute(attribute, self._function), self.name)
        return value


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU: how many blocks are resident at one a multiprocessor."""
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def as_parameters(arguments: Sequence[Argument]) -> tuple[tuple[int | float, ...], tuple[Any, ...]]:
    """Values and their C types, as cuda-bindings takes them."""
    values: list[int | float] = []
    types: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            values.append(argument.data_ptr())
            types.append(ctypes.c_void_p)
        elif argument is None:
            values.append(0)
            types.append(ctypes.c_void_p)
        elif isinstance(argument, float):
            values.append(argument)
            types.append(ctypes.c_float)
        else:
            values.append(argument)
            types.append(ctypes.c_int)
    return tuple(values), tuple(types)


def load_kernel(path: Path, function: str, device: torch.device, **definitions: int) -> Kernel:
    """A kernel compiled for `device`; the same arguments give the same object.

    Args:
        path: of the .cu file.
        function: an `extern "C" __global__` function in it.
        device: a CUDA device.
        definitions: macros for the source; each combination is a kernel of its own.

    Raises:
        EnvironmentProblem: cuda-bindings is missing.
        EngineFault: it does not compile or load.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    return _load_function(path, function, index, tuple(sorted(definitions.items())))


@functools.cache
def _load_function(
    path: Path, function: str, device: int, definitions: tuple[tuple[str, int], ...]
) -> Kernel:
    driver = bindings("driver")
    module = _load_module(path, device, definitions)
    handle = _checked(driver.cuModuleGetFunction(module, function.encode()), f"{path.name}: {function}")
    return Kernel(handle, function)


@functools.cache
def _load_module(path: Path, device: int, definitions: tuple[tuple[str, int], ...]) -> Any:
    driver = bindings("driver")
    major, minor = torch.cuda.get_device_capability(device)
    # The "a" variants hold what a generation keeps for itself; from 9.0 on every one has one.
    architecture = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    cubin = compile_cubin(describe(path, architecture, definitions), cache_folder())
    with torch.cuda.device(device):
        _make_current(driver, device)
        return _checked(driver.cuModuleLoadData(cubin), f"{path.name}: loading")


def _make_current(driver: Any, device: int) -> None:
    """A thread in which torch has not worked yet has no context."""
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no types for it
    handle = _checked(driver.cuDeviceGet(device), "device")
    context = _checked(driver.cuDevicePrimaryCtxRetain(handle), "context")
    _checked(driver.cuCtxSetCurrent(context), "context")


def _checked(result: Any, doing: str) -> Any:
    """The value behind a driver call's status.

    Raises:
        EngineFault: the driver refused.
    """
    status, *values = result
    if int(status) != 0:
        raise EngineFault(f"{doing}: the CUDA driver says {getattr(status, 'name', status)}")
    return values[0] if values else None
