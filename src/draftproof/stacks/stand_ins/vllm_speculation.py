"""Carries out vLLM's own resolution of a speculative configuration on one checkpoint's config.

Run by the evaluator as source beside vLLM's own, never imported. What stands here takes the place of the
model and parallel configurations that vLLM would read from files and from the process.
"""

from __future__ import annotations

from typing import Any

from vllm.config.speculative import SpeculativeConfig

CONTENT: list[dict[str, Any]] = []
"""The content of the checkpoint's config.json."""


class PlainConfig:
    """A config of transformers: its values as attributes, sections as configs of their own."""

    model_type = ""

    def __init__(self, content: dict[str, Any]) -> None:
        for name, value in content.items():
            is_section = isinstance(value, dict) and name.endswith("_config") and "quant" not in name
            setattr(self, name, PlainConfig(value) if is_section else value)

    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def get_text_config(self, decoder: bool = False) -> Any:
        return getattr(self, "text_config", self)


class TargetModel:
    """The target's model configuration, as far as speculation asks for it."""

    hf_overrides = None
    model_weights = ""
    tokenizer = ""
    tokenizer_mode = "auto"
    trust_remote_code = False
    allowed_local_media_path = ""
    allowed_media_domains = None
    dtype = "bfloat16"
    seed = 0
    tokenizer_revision = None
    enforce_eager = False
    max_logprobs = 20
    config_format = "auto"
    is_moe = False

    def __init__(self, path: str, content: dict[str, Any], quantization: str | None, length: int) -> None:
        self.model = path
        self.quantization = quantization
        self.max_model_len = length
        self.hf_config = PlainConfig(content)
        self.hf_text_config = getattr(self.hf_config, "text_config", self.hf_config)
        self.architectures = getattr(self.hf_config, "architectures", [])

    def using_transformers_backend(self) -> bool:
        return False

    def get_vocab_size(self) -> int:
        return 0

    def get_hidden_size(self) -> int:
        return 0


class Registry:
    """Says of every architecture that it is there: whether it is, the code link looks at."""

    def inspect_model_cls(self, architectures: list[str], config: Any) -> Any:
        return None, architectures[0]


class DraftModel:
    """What vLLM's model configuration makes of the draft: the same file, rewritten by the override."""

    head_dtype = "bfloat16"
    dtype = "bfloat16"
    registry = Registry()

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.model = given["model"]
        self.revision = given.get("revision")
        self.quantization = given.get("quantization")
        self.max_model_len = given.get("max_model_len") or given.get("spec_target_max_model_len")
        self.hf_config = given["hf_overrides"](PlainConfig(CONTENT[0]))
        self.hf_text_config = getattr(self.hf_config, "text_config", self.hf_config)
        self.architectures = getattr(self.hf_config, "architectures", [])
        self.is_moe = False

    def get_model_arch_config(self) -> Any:
        return None

    def verify_with_parallel_config(self, parallel: Any) -> None:
        pass

    def get_vocab_size(self) -> int:
        return 0


class Parallel:
    """A parallel configuration: what it was given."""

    enable_expert_parallel = False
    distributed_executor_backend = None
    max_parallel_loading_workers = None
    disable_custom_all_reduce = False
    ray_workers_use_nsight = False
    placement_group = None
    pipeline_parallel_size = 1

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            setattr(self, name, value)


def resolved(
    content: dict[str, Any],
    values: dict[str, Any],
    path: str,
    quantization: str | None,
    ranks: int,
    length: int,
) -> Any:
    """A speculative configuration after vLLM's own resolution and checks.

    Args:
        content: of config.json.
        values: every field of the configuration: what was given, and defaults.
        path: of the checkpoint.
        quantization: the target's quantisation by vLLM's name; None when there is none.
        ranks: tensor parallel size.
        length: tokens of context.
    """
    CONTENT.append(content)
    config = object.__new__(SpeculativeConfig)
    for name, value in values.items():
        setattr(config, name, value)
    config.target_model_config = TargetModel(path, content, quantization, length)
    config.target_parallel_config = Parallel(tensor_parallel_size=ranks)
    config.draft_model_config = None
    config.draft_parallel_config = None
    config.__post_init__()
    config._verify_args()
    draft = config.draft_model_config
    return {
        "method": config.method,
        "model": config.model,
        "num_speculative_tokens": config.num_speculative_tokens,
        "draft_architectures": None if draft is None else draft.architectures,
        "draft_type": None if draft is None else getattr(draft.hf_config, "model_type", None),
        "layers": None if draft is None else getattr(draft.hf_config, "n_predict", None),
        "revision": None if draft is None else getattr(draft, "revision", None),
        "config": config,
    }
