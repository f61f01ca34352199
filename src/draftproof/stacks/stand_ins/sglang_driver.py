"""Builds a draft model of SGLang and loads a checkpoint's tensors into it: shapes and names, no numbers.

Run by the evaluator as source beside SGLang's own, never imported. What stands here takes the place of the
draft worker; `sglang_process` has what is around it.
"""

from __future__ import annotations

from typing import Any

from draftproof_stand_ins.sglang_process import (
    CAPABILITY,
    CHECKPOINT,
    DEFAULTS,
    GROUPS,
    OTHER_FILE,
    WithoutParameters,
    nothing,
)
from draftproof_stand_ins.torch_parts import (
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

HEAD_CLASS: list[Any] = []
"""The class that the registry would give, which was looked up before."""


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
