"""What a model's constructor and its weight loading ask of torch: shapes, dtypes, names; no numbers.

A tensor remembers the storage that it is a view of, and a storage remembers which tensors were copied into
it. So after loading, each parameter tells which tensors of the checkpoint landed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class dtype:
    """A dtype by name."""

    def __init__(self, name: str, itemsize: int, is_floating_point: bool) -> None:
        self.name = name
        self.itemsize = itemsize
        self.is_floating_point = is_floating_point


class Device:
    """Where a tensor lies."""

    type = "cpu"
    index = None


class Storage:
    """The memory of a tensor and its views.

    Attributes:
        label: name of the checkpoint's tensor; empty for memory that the model makes.
        writes: label and number of elements of what was copied into it, in order.
        parts: label and number of elements of what it was joined from.
        is_filled: it was made with contents (zeros, ones), not as `empty`.
    """

    def __init__(self, label: str = "", is_filled: bool = False) -> None:
        self.label = label
        self.writes: list[tuple[str, int]] = []
        self.parts: list[tuple[str, int]] = []
        self.is_filled = is_filled


class Tensor:
    """A tensor without contents."""

    def __init__(self, shape: Any, kind: Any, storage: Storage | None = None) -> None:
        self.shape = shape
        self.dtype = kind
        self.storage = storage if storage is not None else Storage()
        self.requires_grad = False
        self.device = Device()
        self.is_cuda = False
        self.is_cpu = True
        self.is_meta = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def data(self) -> Tensor:
        return Tensor(self.shape, self.dtype, self.storage)

    @data.setter
    def data(self, value: Tensor) -> None:
        self.shape = value.shape
        self.dtype = value.dtype
        self.storage = value.storage

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        count = 1
        for side in self.shape:
            count = count * side
        return count

    def nelement(self) -> int:
        return self.numel()

    def element_size(self) -> int:
        return int(self.dtype.itemsize)

    def is_floating_point(self) -> bool:
        return bool(self.dtype.is_floating_point)

    def is_contiguous(self) -> bool:
        return True

    def _view(self, shape: Any) -> Tensor:
        return Tensor(tuple(shape), self.dtype, self.storage)

    def narrow(self, dim: int, start: Any, length: int) -> Tensor:
        axis = dim % len(self.shape)
        if start < 0 or length < 0 or start + length > self.shape[axis]:
            raise RuntimeError(
                f"start ({start}) + length ({length}) exceeds dimension size ({self.shape[axis]})."
            )
        return self._view((*self.shape[:axis], length, *self.shape[axis + 1 :]))

    def chunk(self, chunks: int, dim: int = 0) -> Any:
        axis = dim % len(self.shape)
        side = self.shape[axis]
        width = -(-side // chunks)
        return tuple(
            self.narrow(axis, start, min(width, side - start)) for start in range(0, side, max(width, 1))
        )

    def split(self, sizes: Any, dim: int = 0) -> Any:
        axis = dim % len(self.shape)
        if isinstance(sizes, int):
            return self.chunk(-(-self.shape[axis] // sizes), axis)
        if sum(sizes) != self.shape[axis]:
            raise RuntimeError(f"split sizes {sizes} do not add up to {self.shape[axis]}")
        return tuple(self.narrow(axis, sum(sizes[:place]), size) for place, size in enumerate(sizes))

    def unbind(self, dim: int = 0) -> Any:
        axis = dim % len(self.shape)
        rest = (*self.shape[:axis], *self.shape[axis + 1 :])
        return tuple(self._view(rest) for _ in range(self.shape[axis]))

    def __getitem__(self, index: Any) -> Tensor:
        parts = index if isinstance(index, tuple) else (index,)
        shape = []
        axis = 0
        for part in parts:
            if part is None:
                shape.append(1)
                continue
            if part is Ellipsis:
                kept = len(self.shape) - (len(parts) - 1)
                shape.extend(self.shape[axis : axis + kept])
                axis = axis + kept
                continue
            if axis >= len(self.shape):
                raise IndexError("too many indices for tensor")
            side = self.shape[axis]
            if isinstance(part, int):
                if part >= side or part < -side:
                    raise IndexError(f"index {part} is out of bounds for dimension {axis} with size {side}")
            elif isinstance(part, slice):
                shape.append(len(range(side)[part]))
            else:
                shape.append(side)
            axis = axis + 1
        shape.extend(self.shape[axis:])
        return self._view(shape)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            self[index].copy_(value)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind(0))

    def unsqueeze(self, dim: int) -> Tensor:
        axis = dim if dim >= 0 else dim + len(self.shape) + 1
        return self._view((*self.shape[:axis], 1, *self.shape[axis:]))

    def squeeze(self, dim: int | None = None) -> Tensor:
        if dim is None:
            return self._view([side for side in self.shape if side != 1])
        axis = dim % len(self.shape)
        if self.shape[axis] != 1:
            return self._view(self.shape)
        return self._view((*self.shape[:axis], *self.shape[axis + 1 :]))

    def reshape(self, *shape: Any) -> Tensor:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        known = 1
        for side in wanted:
            known = known * side if side != -1 else known
        total = self.numel()
        sides = [side if side != -1 else total // max(known, 1) for side in wanted]
        count = 1
        for side in sides:
            count = count * side
        if count != total:
            raise RuntimeError(f"shape '{list(wanted)}' is invalid for input of size {total}")
        return self._view(sides)

    def view(self, *shape: Any) -> Tensor:
        if len(shape) == 1 and isinstance(shape[0], dtype):
            return Tensor(self.shape, shape[0], self.storage)
        return self.reshape(*shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        return self._view((self.numel(),))

    def transpose(self, first: int, second: int) -> Tensor:
        sides = list(self.shape)
        if not all(-len(sides) <= axis < len(sides) for axis in (first, second)):
            raise IndexError(f"dimensions {first} and {second} of a tensor with {len(sides)}")
        one = first % len(sides)
        other = second % len(sides)
        held = sides[one]
        sides[one] = sides[other]
        sides[other] = held
        return self._view(sides)

    def t(self) -> Tensor:
        if len(self.shape) > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(self.shape)}D")
        return self.transpose(0, 1) if len(self.shape) == 2 else self._view(self.shape)

    def permute(self, *order: Any) -> Tensor:
        wanted = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
        return self._view([self.shape[axis] for axis in wanted])

    def expand(self, *shape: Any) -> Tensor:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._view([self.shape[i] if side == -1 else side for i, side in enumerate(wanted)])

    def repeat_interleave(self, count: int, dim: int = 0) -> Tensor:
        axis = dim % len(self.shape)
        return self._view((*self.shape[:axis], self.shape[axis] * count, *self.shape[axis + 1 :]))

    def contiguous(self) -> Tensor:
        return self

    def to(self, *args: Any, **keywords: Any) -> Tensor:
        for value in [*args, *keywords.values()]:
            if isinstance(value, dtype):
                return Tensor(self.shape, value, self.storage)
        return self

    def type(self, kind: Any) -> Tensor:
        return Tensor(self.shape, kind, self.storage)

    def cpu(self) -> Tensor:
        return self

    def cuda(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.shape, self.dtype, self.storage)

    def detach(self) -> Tensor:
        return Tensor(self.shape, self.dtype, self.storage)

    def float(self) -> Tensor:
        return self

    def pin_memory(self) -> Tensor:
        return self

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor:
        mine = list(self.shape)
        theirs = list(source.shape)
        padded = [1] * (len(mine) - len(theirs)) + theirs
        if len(padded) != len(mine) or any(
            side != 1 and side != other
            for side, other in zip(padded, mine)  # noqa: B905
        ):
            raise RuntimeError(
                f"The size of tensor a {tuple(mine)} must match the size of tensor b {tuple(theirs)}"
            )
        self.storage.writes.extend(source.storage.parts or [(source.storage.label, source.numel())])
        return self

    def fill_(self, value: Any) -> Tensor:
        self.storage.is_filled = True
        return self

    def zero_(self) -> Tensor:
        self.storage.is_filled = True
        return self

    def add_(self, *args: Any, **keywords: Any) -> Tensor:
        return self

    def mul_(self, *args: Any, **keywords: Any) -> Tensor:
        return self

    def __add__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __radd__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __sub__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __mul__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __rmul__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __truediv__(self, other: Any) -> Tensor:
        return self._view(self.shape)

    def __neg__(self) -> Tensor:
        return self._view(self.shape)

    def uniform_(self, *args: Any, **keywords: Any) -> Tensor:
        return self

    def normal_(self, *args: Any, **keywords: Any) -> Tensor:
        return self


class Parameter(Tensor):
    """A tensor that belongs to a module."""

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        made = object.__new__(cls)
        Tensor.__init__(
            made,
            data.shape if data is not None else (0,),
            data.dtype if data is not None else bfloat16,
            data.storage if data is not None else None,
        )
        made.requires_grad = requires_grad
        return made

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        pass


class Module:
    """A module: its children and parameters are its attributes."""

    training = False

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.buffer_names: list[str] = []
        self._non_persistent_buffers_set: set[str] = set()

    def register_parameter(self, name: str, parameter: Any) -> None:
        setattr(self, name, parameter)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        setattr(self, name, tensor)
        self.buffer_names.append(name)
        if not persistent:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: Any) -> None:
        setattr(self, name, module)

    def add_module(self, name: str, module: Any) -> None:
        setattr(self, name, module)

    def named_children(self) -> list[tuple[str, Module]]:
        return [(name, value) for name, value in vars(self).items() if isinstance(value, Module)]

    def children(self) -> list[Module]:
        return [module for _, module in self.named_children()]

    def named_modules(
        self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True
    ) -> list[tuple[str, Module]]:
        found: list[tuple[str, Module]] = []
        self._collect(prefix, found, [] if remove_duplicate else None)
        return found

    def _collect(self, prefix: str, found: list[tuple[str, Module]], seen: list[Module] | None) -> None:
        if seen is not None:
            if any(other is self for other in seen):
                return
            seen.append(self)
        found.append((prefix, self))
        for name, child in self.named_children():
            child._collect(f"{prefix}.{name}" if prefix else name, found, seen)

    def modules(self) -> list[Module]:
        return [module for _, module in self.named_modules()]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> list[tuple[str, Parameter]]:
        seen: list[Any] = []
        found: list[tuple[str, Parameter]] = []
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for owner, module in owners:
            for name, value in vars(module).items():
                if not isinstance(value, Parameter):
                    continue
                if remove_duplicate and any(other is value for other in seen):
                    continue
                seen.append(value)
                found.append((f"{owner}.{name}" if owner else name, value))
        return found

    def parameters(self, recurse: bool = True) -> list[Parameter]:
        return [parameter for _, parameter in self.named_parameters(recurse=recurse)]

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> list[tuple[str, Tensor]]:
        owners = self.named_modules(prefix=prefix) if recurse else [(prefix, self)]
        found: list[tuple[str, Tensor]] = []
        for owner, module in owners:
            for name in module.buffer_names:
                value = getattr(module, name, None)
                if isinstance(value, Tensor):
                    found.append((f"{owner}.{name}" if owner else name, value))
        return found

    def buffers(self, recurse: bool = True) -> list[Tensor]:
        return [tensor for _, tensor in self.named_buffers(recurse=recurse)]

    def get_submodule(self, target: str) -> Any:
        module: Any = self
        for part in target.split("."):
            module = getattr(module, part) if part else module
        return module

    def get_parameter(self, target: str) -> Any:
        return self.get_submodule(target)

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        return ""

    def requires_grad_(self, wanted: bool = True) -> Module:
        return self

    def to(self, *args: Any, **keywords: Any) -> Module:
        return self

    def eval(self) -> Module:
        return self

    def cuda(self, *args: Any) -> Module:
        return self

    def register_forward_pre_hook(self, *args: Any, **keywords: Any) -> None:
        pass

    def register_forward_hook(self, *args: Any, **keywords: Any) -> None:
        pass


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self._count = 0
        for module in modules or []:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        setattr(self, str(self._count), module)
        self._count = self._count + 1
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Module]:
        return iter([getattr(self, str(number)) for number in range(self._count)])

    def __getitem__(self, index: Any) -> Any:
        modules = [getattr(self, str(number)) for number in range(self._count)]
        return modules[index]


class Sequential(ModuleList):
    """Modules one after the other."""

    def __init__(self, *modules: Any) -> None:
        super().__init__(list(modules))


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        self._names: list[str] = []
        for name, module in dict(modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, module)
        self._names.append(name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def keys(self) -> list[str]:
        return list(self._names)

    def values(self) -> list[Any]:
        return [getattr(self, name) for name in self._names]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self._names]


class Linear(Module):
    """torch.nn.Linear."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        kind = dtype if dtype is not None else bfloat16
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(Tensor((out_features, in_features), kind))
        self.bias = Parameter(Tensor((out_features,), kind)) if bias else None


class Embedding(Module):
    """torch.nn.Embedding."""

    def __init__(self, count: int, width: int, **keywords: Any) -> None:
        super().__init__()
        self.weight = Parameter(Tensor((count, width), bfloat16))


class LayerNorm(Module):
    """torch.nn.LayerNorm, and RMSNorm without a bias."""

    def __init__(self, shape: Any, eps: float = 1e-5, bias: bool = True, **keywords: Any) -> None:
        super().__init__()
        sides = (shape,) if isinstance(shape, int) else tuple(shape)
        self.weight = Parameter(Tensor(sides, bfloat16, Storage("", True)))
        self.bias = Parameter(Tensor(sides, bfloat16, Storage("", True))) if bias else None


class BatchNorm(Module):
    """Batch normalisation, which no head has."""


class Identity(Module):
    """torch.nn.Identity, and every module that has no parameters."""


float64 = dtype("float64", 8, True)
float32 = dtype("float32", 4, True)
float16 = dtype("float16", 2, True)
bfloat16 = dtype("bfloat16", 2, True)
float8_e4m3fn = dtype("float8_e4m3fn", 1, True)
float8_e5m2 = dtype("float8_e5m2", 1, True)
float8_e8m0fnu = dtype("float8_e8m0fnu", 1, True)
uint8 = dtype("uint8", 1, False)
int8 = dtype("int8", 1, False)
int16 = dtype("int16", 2, False)
int32 = dtype("int32", 4, False)
int64 = dtype("int64", 8, False)
bool_ = dtype("bool", 1, False)


def _sides(size: Any) -> Any:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def empty(*size: Any, dtype: Any = None, **keywords: Any) -> Tensor:
    """Memory without contents."""
    return Tensor(_sides(size or (keywords["size"],)), dtype if dtype is not None else bfloat16)


def filled(*size: Any, dtype: Any = None, **keywords: Any) -> Tensor:
    """Zeros or ones."""
    kind = dtype if dtype is not None else bfloat16
    return Tensor(_sides(size or (keywords["size"],)), kind, Storage("", True))


def full(size: Any, fill_value: Any = 0, dtype: Any = None, **keywords: Any) -> Tensor:
    """One value everywhere."""
    sides = (size,) if isinstance(size, int) else tuple(size)
    return Tensor(sides, dtype if dtype is not None else float32, Storage("", True))


def like(other: Tensor, dtype: Any = None, **keywords: Any) -> Tensor:
    """The shape of another."""
    return Tensor(other.shape, dtype if dtype is not None else other.dtype)


def tensor(value: Any, dtype: Any = None, **keywords: Any) -> Tensor:
    """From numbers."""
    sides = []
    inner = value
    while isinstance(inner, (list, tuple)):
        sides.append(len(inner))
        inner = inner[0] if inner else 0
    return Tensor(tuple(sides), dtype if dtype is not None else float32, Storage("", True))


def arange(*bounds: Any, dtype: Any = None, **keywords: Any) -> Tensor:
    """Consecutive numbers."""
    return Tensor((len(range(*bounds)),), dtype if dtype is not None else int64, Storage("", True))


def cat(tensors: Any, dim: int = 0) -> Tensor:
    """One after the other."""
    parts = list(tensors)
    axis = dim % len(parts[0].shape)
    side = sum(part.shape[axis] for part in parts)
    shape = (*parts[0].shape[:axis], side, *parts[0].shape[axis + 1 :])
    storage = Storage(parts[0].storage.label)
    storage.parts = [(part.storage.label, part.numel()) for part in parts]
    return Tensor(shape, parts[0].dtype, storage)


def split(source: Tensor, sizes: Any, dim: int = 0) -> Any:
    """torch.split."""
    return source.split(sizes, dim)


def chunk(source: Tensor, chunks: int, dim: int = 0) -> Any:
    """torch.chunk."""
    return source.chunk(chunks, dim)


def get_default_dtype() -> Any:
    """The model's dtype while it is built."""
    return bfloat16


def same(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that changes nothing."""
    return function
