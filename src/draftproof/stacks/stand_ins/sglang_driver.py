"""Builds a draft model of SGLang and loads a checkpoint's tensors into it: shapes and names, no numbers.

Run by the evaluator as source beside SGLang's own, never imported. What stands here takes the place of the
draft worker: one rank, one CUDA device, default arguments.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from draftproof_stand_ins.torch_parts import (
    Module,
    Parameter,
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
TARGETS_EMBEDDING = "the target's embedding"
TARGETS_OUTPUT_HEAD = "the target's output head"

__all__ = ["field"]

CHECKPOINT = "checkpoint"
"""Path of the folder."""

HEAD_CLASS: list[Any] = []
"""The class that the registry would give, which was looked up before."""


OTHER_FILE: list[Any] = []
"""Content of hf_quant_config.json, when there is one."""

DEFAULTS: dict[str, Any] = {}
"""Server arguments by name, as declared."""

GROUPS: list[str] = ["capture", "dp", "sp"]
"""Names under which server arguments and flags are grouped; others are arguments."""

CAPABILITY = [100]
"""Compute capability times ten."""


class PretrainedConfig:
    """What a config class of transformers does with values that it does not name itself."""

    model_type = ""
    sub_configs: dict[str, Any] = {}  # noqa: RUF012 - as in transformers

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __iter__(self) -> Any:
        return iter(list(vars(self)))

    def to_dict(self) -> Any:
        return dict(vars(self))

    def get_text_config(self, decoder: bool = False) -> Any:
        return getattr(self, "text_config", self)


class PlainConfig(PretrainedConfig):
    """A config whose class is in transformers, or nowhere; with what most of those classes begin with."""

    hidden_act = "silu"
    rms_norm_eps = 1e-6
    layernorm_epsilon = 1e-6
    rope_scaling = None
    rope_theta = 10000.0
    attention_bias = False
    attention_dropout = 0.0
    tie_word_embeddings = False
    max_position_embeddings = 32768
    quantization_config = None

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        for name in ("text_config", "vision_config"):
            value = getattr(self, name, None)
            if isinstance(value, dict):
                setattr(self, name, PlainConfig(**value))


class LoadConfig:
    """The loader's settings, as they are without arguments."""

    draft_model_idx = None
    download_dir = None
    load_format = "auto"
    model_loader_extra_config: dict[str, Any] = {}  # noqa: RUF012 - as in SGLang


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


def architecture(*args: Any) -> Any:
    """Stands for the registry."""
    return HEAD_CLASS[0], HEAD_CLASS[0].__name__


def draft_config(model_config_class: Any, config_class: Any, content: Any) -> Any:
    """The config of the draft worker: SGLang's own class, and SGLang's own rules for a draft."""
    model_config = object.__new__(model_config_class)
    config = config_class(**content)
    model_config.hf_config = config
    model_config.hf_text_config = getattr(config, "text_config", config)
    model_config.is_draft_model = True
    model_config.is_draft_quantization_explicit = False
    model_config.speculative_algorithm = "EAGLE"
    model_config.quantization = None
    model_config.model_path = CHECKPOINT
    model_config.revision = None
    model_config.sliding_window_size = None
    model_config.nvfp4_moe_meta = None
    model_config.is_fp4_experts = False
    model_config.dtype = bfloat16
    model_config._config_draft_model()
    return model_config


def draft_architecture(*subject: Any) -> Any:
    """The first architecture of the draft's config."""
    return draft_config(*subject).hf_config.architectures[0]


def build(
    head_class: Any,
    get_quantization_config: Any,
    initialize_model: Any,
    situation: Any,
    other: Any,
    *subject: Any,
) -> Any:
    """The draft model, its parameters unwritten.

    Args:
        head_class: its class.
        get_quantization_config: the stack's function that makes the quantisation of a model config.
        initialize_model: the stack's function that makes the model.
        situation: compute capability times ten, the server arguments' defaults, `--quantization` or None,
            and the names of groups of arguments.
        other: content of hf_quant_config.json; None when there is none.
        subject: arguments of `draft_config`.
    """
    HEAD_CLASS.append(head_class)
    CAPABILITY[0] = situation[0]
    DEFAULTS.update(situation[1])
    GROUPS.extend(situation[3])
    if other is not None:
        OTHER_FILE.append(other)
    model_config = draft_config(*subject)
    model_config.quantization = situation[2]
    model_config._find_quant_modelslim_config = nothing
    model_config._verify_quantization()
    quantisation = get_quantization_config(model_config, LoadConfig())
    return initialize_model(model_config, LoadConfig(), quantisation)


def tensors(stored: Any) -> Any:
    """The checkpoint's tensors: names with shapes and dtypes."""
    return [(name, Tensor(tuple(shape), KINDS[kind], Storage(name))) for name, shape, kind in stored]


def parameters(model: Any) -> Any:
    """Name, shape, dtype, what was written into it, whether it was made with contents, whose memory it is."""
    return [
        (
            name,
            tuple(value.shape),
            value.dtype.name,
            tuple(value.storage.writes),
            value.storage.is_filled,
            value.storage.label,
        )
        for name, value in model.named_parameters(remove_duplicate=False)
    ]


def load(stored: Any, *subject: Any) -> Any:
    """Builds, loads everything, and lets the target share; the parameters at each of these times."""
    model = build(*subject)
    built = parameters(model)
    model.load_weights(tensors(stored))
    loaded = parameters(model)
    share(model)
    return built, loaded, parameters(model)


def load_singly(stored: Any, *subject: Any) -> Any:
    """Builds, and loads the tensors one by one; the parameters, and the errors by the tensor's name."""
    model = build(*subject)
    built = parameters(model)
    errors = {}
    for entry in tensors(stored):
        mark(entry[0])
        try:
            model.load_weights([entry])
        except Exception as error:  # noqa: BLE001 - whatever the loader raises is what is asked for
            errors[entry[0]] = (type(error).__name__, str(error))
    loaded = parameters(model)
    share(model)
    return built, loaded, parameters(model), errors


def mark(name: str) -> None:
    """Its calls stand between the messages of the log."""


def share(model: Any) -> None:
    """As the draft worker does with the target's embedding and output head."""
    embedding = Parameter(Tensor((1, 1), bfloat16, Storage(TARGETS_EMBEDDING)))
    head = Parameter(Tensor((1, 1), bfloat16, Storage(TARGETS_OUTPUT_HEAD)))
    if hasattr(model, "set_embed_and_head"):
        model.set_embed_and_head(embedding, head)
    if hasattr(model, "set_lm_head_from_target"):
        module = WithoutParameters()
        module.weight = head
        model.set_lm_head_from_target(module)
