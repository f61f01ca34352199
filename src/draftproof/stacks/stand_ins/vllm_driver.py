"""Builds a draft model of vLLM and loads a checkpoint's tensors into it: shapes and names, no numbers.

Run by the evaluator as source beside vLLM's own, never imported. What stands here takes the place of the
process that vLLM would run in: one rank, one CUDA device, the default configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof_stand_ins.torch_parts import (
    Module,
    Storage,
    Tensor,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)

CURRENT: list[Any] = []
"""The configuration that is in force, as `set_current_vllm_config` would hold it."""

KINDS = {
    "BF16": bfloat16,
    "F16": float16,
    "F32": float32,
    "F64": float64,
    "F8_E4M3": float8_e4m3fn,
    "F8_E5M2": float8_e5m2,
    "F8_E8M0": float8_e8m0fnu,
    "U8": uint8,
    "I8": int8,
    "I16": int16,
    "I32": int32,
    "I64": int64,
    "BOOL": bool_,
}


class Group:
    """A group of ranks that has one member."""

    world_size = 1
    rank = 0
    rank_in_group = 0
    local_rank = 0
    is_first_rank = True
    is_last_rank = True

    @property
    def device_group(self) -> Group:
        return self

    @property
    def cpu_group(self) -> Group:
        return self

    def size(self) -> int:
        return 1


class WithoutParameters(Module):
    """A layer that no tensor of a head belongs to: attention without cache scales, rotary embedding."""

    kv_cache_dtype = "auto"
    is_neox_style = True

    def enabled(self) -> bool:
        return True

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__()


class LatentAttention(WithoutParameters):
    """Attention over a latent cache; layers that it is given are its own."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__()
        for name, value in keywords.items():
            if isinstance(value, Module):
                setattr(self, name, value)


def group(*args: Any) -> Group:
    """Every parallel group."""
    return Group()


def one(*args: Any) -> int:
    """The size of every group."""
    return 1


def zero(*args: Any) -> int:
    """The rank in every group."""
    return 0


def nothing(*args: Any, **keywords: Any) -> None:
    """A call whose effect does not matter here."""


def unchanged(first: Any, *args: Any, **keywords: Any) -> Any:
    """Its first argument."""
    return first


def rotary(*args: Any, **keywords: Any) -> Module:
    """Rotary embedding."""
    return WithoutParameters()


def pair(*args: Any, **keywords: Any) -> Any:
    """A kernel and its class; which one, is another link's question."""
    return (None, None)


def current(*args: Any) -> Any:
    """The configuration in force."""
    return CURRENT[0]


def build(
    draft_class: Any,
    target_class: Any,
    method: Any,
    section: Any,
    find: Callable[..., Any],
    configure: Callable[..., Any],
    vllm_config: Any,
    capability: Any,
) -> Any:
    """The draft model, its parameters unwritten."""
    PLATFORM.capability = Capability(capability[0], capability[1])
    CURRENT.append(vllm_config)
    quantisation = None
    if method is not None:
        quantisation = find(method).from_config(section)
        if target_class is not None:
            configure(quantisation, target_class)
        configure(quantisation, draft_class)
    vllm_config.quant_config = quantisation
    return draft_class(vllm_config=vllm_config, prefix="")


def tensors(stored: Any) -> Any:
    """The checkpoint's tensors: names with shapes and dtypes."""
    return [
        (name, Tensor(tuple(shape), KINDS.get(kind, uint8), Storage(name))) for name, shape, kind in stored
    ]


def build_and_load(stored: Any, *subject: Any) -> Any:
    """The draft model with all tensors loaded, and what its loader says that it loaded."""
    model = build(*subject)
    loaded = model.load_weights(tensors(stored))
    return model, loaded


def build_and_load_singly(stored: Any, *subject: Any) -> Any:
    """The draft model with the tensors loaded one by one, and the errors by the tensor's name."""
    model = build(*subject)
    errors = {}
    for entry in tensors(stored):
        try:
            model.load_weights([entry])
        except Exception as error:  # noqa: BLE001 - whatever the loader raises is what is asked for
            errors[entry[0]] = (type(error).__name__, str(error))
    return model, errors


def decorator(*args: Any, **keywords: Any) -> Any:
    """A decorator that leaves a class as it is, with and without arguments of its own."""
    if args and not keywords:
        return args[0]
    return unchanged


class Router:
    """What chooses experts; no tensor belongs to it."""

    kernel_routing_method_type = None
    routing_method_type = None
    supports_monolithic_kernels = True

    def prepare_monolithic_bias(self, bias: Any) -> Any:
        return bias


def router(*args: Any, **keywords: Any) -> Router:
    """The router of an experts' layer."""
    return Router()


def compilation(*args: Any) -> Any:
    """The compilation part of the configuration in force."""
    return CURRENT[0].compilation_config


def grouped(items: Any, key: Any = None) -> Any:
    """itertools.groupby, all at once."""
    groups: list[tuple[Any, list[Any]]] = []
    for item in items:
        value = key(item) if key is not None else item
        if groups and groups[-1][0] == value:
            groups[-1][1].append(item)
        else:
            groups.append((value, [item]))
    return groups


def static_attribute(owner: Any, name: str, default: Any = None) -> Any:
    """inspect.getattr_static."""
    return getattr(owner, name, default)


def tied_embeddings(module: Any) -> dict[str, str]:
    """For each embedding parameter that has a second name: the first one (vLLM's own goes by id())."""
    seen: list[tuple[Any, str]] = []
    tied: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first = [earlier for other, earlier in seen if other is parameter]
        if first:
            tied[name] = first[0]
        else:
            seen.append((parameter, name))
    return tied


class Holder:
    """An object with a few attributes."""


def recognise(convertor: Any, verify: Callable[..., Any], model_config: Any) -> Any:
    """The name of the quantisation that vLLM recognises, and the section that it is made from."""
    reader = object.__new__(convertor)
    reader.hf_config = model_config.hf_config
    reader.hf_text_config = model_config.hf_text_config
    holder = Holder()
    holder.quantization_config = reader.get_quantization_config()  # type: ignore[attr-defined]
    model_config.model_arch_config = holder
    verify(model_config)
    return model_config.quantization, holder.quantization_config  # type: ignore[attr-defined]


class Capability:
    """A compute capability."""

    def __init__(self, major: int, minor: int) -> None:
        self.major = major
        self.minor = minor

    def to_int(self) -> int:
        return self.major * 10 + self.minor

    def as_version_str(self) -> str:
        return f"{self.major}.{self.minor}"

    def __getitem__(self, index: int) -> int:
        return (self.major, self.minor)[index]

    def __lt__(self, other: Any) -> bool:
        return (self.major, self.minor) < (other[0], other[1])

    def __le__(self, other: Any) -> bool:
        return (self.major, self.minor) <= (other[0], other[1])

    def __gt__(self, other: Any) -> bool:
        return (self.major, self.minor) > (other[0], other[1])

    def __ge__(self, other: Any) -> bool:
        return (self.major, self.minor) >= (other[0], other[1])

    def __eq__(self, other: object) -> bool:
        return other is not None and (self.major, self.minor) == (other[0], other[1])  # type: ignore[index]

    def __hash__(self) -> int:
        return self.to_int()


class Platform:
    """An NVIDIA GPU; what else is asked of it is answered with nothing."""

    device_type = "cuda"
    device_name = "cuda"
    dispatch_key = "CUDA"

    def __init__(self, major: int, minor: int) -> None:
        self.capability = Capability(major, minor)

    @property
    def _enum(self) -> Any:
        from vllm.platforms.interface import PlatformEnum

        return PlatformEnum.CUDA

    def is_cuda(self) -> bool:
        return True

    def is_cuda_alike(self) -> bool:
        return True

    def get_device_capability(self, *args: Any) -> Capability:
        return self.capability

    def has_device_capability(self, wanted: Any, *args: Any) -> bool:
        return self.capability.to_int() >= _as_number(wanted)

    def is_device_capability(self, wanted: Any, *args: Any) -> bool:
        return self.capability.to_int() == _as_number(wanted)

    def is_device_capability_family(self, wanted: int, *args: Any) -> bool:
        return self.capability.major == wanted // 10

    def supports_fp8(self) -> bool:
        return self.capability.to_int() >= 89

    def fp8_dtype(self) -> Any:
        return float8_e4m3fn

    def __getattr__(self, name: str) -> Any:
        return nothing


def _as_number(wanted: Any) -> int:
    return int(wanted) if isinstance(wanted, int) else int(wanted[0]) * 10 + int(wanted[1])


PLATFORM = Platform(9, 0)
"""Set to the GPU that is asked about before anything is built."""


class Suppressing:
    """contextlib.suppress."""

    def __init__(self, *kinds: Any) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return error is not None and isinstance(error, self.kinds)
