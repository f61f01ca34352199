"""The process that SGLang's code meets: one rank, one NVIDIA GPU, default arguments, a checkpoint's folder.

Run by the evaluator as source beside SGLang's own, never imported.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from draftproof_stand_ins.torch_parts import Module

__all__ = ["field"]

CHECKPOINT = "checkpoint"
"""Path of the folder."""

OTHER_FILE: list[Any] = []
"""Content of hf_quant_config.json, when there is one."""

DEFAULTS: dict[str, Any] = {}
"""Server arguments by name, as declared."""

GROUPS: list[str] = ["capture", "dp", "sp"]
"""Names under which server arguments and flags are grouped; others are arguments."""

CAPABILITY = [100]
"""Compute capability times ten."""


class Parallel:
    """The layout: one rank in every group."""

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_group"):
            return Group()
        if name.endswith("_rank"):
            return 0
        if name.endswith("_size"):
            return 1
        return False


class Arguments:
    """Server arguments that nobody gave: each has the default that its declaration says."""

    def __getattr__(self, name: str) -> Any:
        if name in DEFAULTS:
            return DEFAULTS[name]
        return Arguments() if name in GROUPS else None

    def __setattr__(self, name: str, value: Any) -> None:
        DEFAULTS[name] = value

    def override(self, **values: Any) -> Any:
        DEFAULTS.update(values)
        return NoStages()


class Struct:
    """A class of msgspec: fields with types, as a dataclass has them."""

    def __init_subclass__(cls, **options: Any) -> None:
        dataclass(cls)


class Nothing:
    """An attribute of which nothing is asked but that it is there."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **keywords: Any) -> None:
        return None

    def __bool__(self) -> bool:
        return False


NOTHING = Nothing()


class Fact:
    """A truth, asked for as an attribute or as a method."""

    def __init__(self, holds: bool) -> None:
        self.holds = holds

    def __bool__(self) -> bool:
        return self.holds

    def __call__(self, *args: Any, **keywords: Any) -> bool:
        return self.holds


class Platform:
    """An NVIDIA GPU of the compute capability that is asked about."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_sm"):
            digits = name[5:].partition("_")[0]
            return Fact(digits.isdigit() and CAPABILITY[0] == int(digits))
        if name.startswith("is_blackwell"):
            return Fact(CAPABILITY[0] >= 100)
        if name.startswith("is_hopper"):
            return Fact(CAPABILITY[0] == 90)
        if name.startswith(("is_", "supports_")):
            return Fact(name in ("is_cuda", "is_cuda_alike", "is_nvidia"))
        return nothing


GPU = Platform()


class Group:
    """A group of ranks that has one member."""

    world_size = 1
    rank = 0
    rank_in_group = 0
    local_rank = 0
    is_first_rank = True
    is_last_rank = True


class WithoutParameters(Module):
    """A layer that no tensor of a head belongs to: attention without cache scales, rotary embedding."""

    rotary_dim = 64
    head_size = 64

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        return NOTHING


class Suppressed:
    """contextlib.suppress."""

    def __init__(self, *kinds: Any) -> None:
        self.kinds = kinds

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return error is not None and isinstance(error, self.kinds)


class Executor:
    """A pool of threads that has none: what is handed in runs at once."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.futures: list[Any] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def submit(self, function: Any, *args: Any, **keywords: Any) -> Any:
        return Future(function(*args, **keywords))


class Future:
    """What came of it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self, *args: Any) -> Any:
        return self.value


class Limits:
    """Limits of a dtype."""

    min = -1.0
    max = 1.0
    eps = 1.0
    tiny = 1.0
    bits = 16


class ScalarType:
    """A format of a packed weight."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size_bits = 8 if "8" in name else 4


class ScalarTypes:
    """The formats by name."""

    uint4 = ScalarType("uint4")
    uint8 = ScalarType("uint8")
    uint3b4 = ScalarType("uint3b4")
    uint4b8 = ScalarType("uint4b8")
    uint8b128 = ScalarType("uint8b128")
    int4 = ScalarType("int4")
    int8 = ScalarType("int8")
    float8_e4m3fn = ScalarType("float8_e4m3fn")
    float8_e8m0fnu = ScalarType("float8_e8m0fnu")
    float4_e2m1f = ScalarType("float4_e2m1f")
    float16 = ScalarType("float16")
    bfloat16 = ScalarType("bfloat16")


SCALAR_TYPES = ScalarTypes()


class Runner:
    """What runs experts; which kernel, is another link's question."""

    def __init__(self, runner_backend: Any = None, *args: Any, **keywords: Any) -> None:
        self.runner_backend = runner_backend

    def __getattr__(self, name: str) -> Any:
        return NOTHING


class NoStages:
    """Layer boundaries: they connect layers, and own no parameters."""

    def __init__(self) -> None:
        self.appends: list[Any] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        return None


def parallel(*args: Any) -> Parallel:
    """The layout."""
    return Parallel()


def arguments(*args: Any) -> Arguments:
    """Any part of the server's arguments."""
    return Arguments()


def platform(*args: Any) -> Platform:
    """The GPU."""
    return GPU


def capability(*args: Any, **keywords: Any) -> Any:
    """Its compute capability as a pair."""
    return CAPABILITY[0] // 10, CAPABILITY[0] % 10


def capability_number(*args: Any) -> int:
    """Its compute capability times ten."""
    return CAPABILITY[0]


def size(sides: Any = ()) -> Any:
    """torch.Size."""
    return tuple(sides)


def processors() -> int:
    """Multiprocessors of a GPU; nobody looks at the number."""
    return 132


def exists(path: Any, *args: Any) -> bool:
    """The checkpoint's folder, and the files in it that a stack may look for."""
    text = str(path)
    return text == CHECKPOINT or (bool(OTHER_FILE) and text.endswith("hf_quant_config.json"))


def is_folder(path: Any) -> bool:
    """The checkpoint's folder."""
    return str(path) == CHECKPOINT


def other_files(*args: Any, **keywords: Any) -> Any:
    """JSON files in the folder that a stack may look for."""
    return [f"{CHECKPOINT}/hf_quant_config.json"] if OTHER_FILE else []


def open_file(*args: Any, **keywords: Any) -> Any:
    """One of them."""
    return NoStages()


def read_file(*args: Any) -> Any:
    """Its content."""
    return copy.deepcopy(OTHER_FILE[0])


def limits(*args: Any) -> Limits:
    """torch.finfo and torch.iinfo; nobody looks at the numbers."""
    return Limits()


def group(*args: Any) -> Group:
    """Every parallel group."""
    return Group()


def one(*args: Any, **keywords: Any) -> int:
    """The size of every group."""
    return 1


def zero(*args: Any, **keywords: Any) -> int:
    """The rank in every group."""
    return 0


def true(*args: Any, **keywords: Any) -> bool:
    """What holds on an NVIDIA GPU."""
    return True


def false(*args: Any, **keywords: Any) -> bool:
    """What does not hold on an NVIDIA GPU, or is off without arguments."""
    return False


def nothing(*args: Any, **keywords: Any) -> None:
    """A call whose effect does not matter here."""


def attribute(owner: Any, name: str, default: Any = None) -> Any:
    """An attribute without the effects that reading it may have."""
    return getattr(owner, name, default)


def is_class(value: Any) -> bool:
    """Whether it is a class."""
    return isinstance(value, type)


def named(variable: Any, owner: Any, name: str) -> None:
    """What a class tells its environment variables."""
    variable.name = name


def decorator(*args: Any, **keywords: Any) -> Any:
    """A decorator that leaves a function as it is, with and without arguments of its own."""
    return args[0] if args else unchanged


def unchanged(first: Any, *args: Any, **keywords: Any) -> Any:
    """Its first argument."""
    return first


def stages(*args: Any, **keywords: Any) -> Any:
    """Layer boundaries."""
    return NoStages()


def two_stages(*args: Any, **keywords: Any) -> Any:
    """The boundaries of a layer's two halves."""
    return NoStages(), NoStages()


def rotary(*args: Any, **keywords: Any) -> Module:
    """Rotary embedding."""
    return WithoutParameters()
