"""The configuration that a draft model is built with: defaults, one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.stacks.evaluation import Given, Missing, Named, pretrained_config
from draftproof.stacks.torch_names import PARTS
from draftproof.stacks.vllm.code.quantisation import Quantisation


def vllm_config(
    config: Mapping[str, Any], draft_config: Mapping[str, Any], quantisation: Quantisation | None
) -> Given:
    """What vLLM hands to every model, with the defaults of a start without options.

    Args:
        config: the target's config.json.
        draft_config: the same after vLLM's override for the draft.
        quantisation: of the checkpoint; None for none.
    """
    method = None if quantisation is None else quantisation.method
    target = model_config("model_config", config, method)
    draft = model_config("draft_model_config", draft_config, method)
    speculative = Given(
        "speculative_config",
        {"draft_model_config": draft, "method": "mtp", "num_speculative_tokens": 1},
        missing=Missing.NONE,
    )
    compilation = Given(
        "compilation_config",
        {
            "static_forward_context": {},
            "static_all_moe_layers": [],
            "custom_ops": ["none"],
            "mode": Named("vllm/config/compilation.py", "CompilationMode.VLLM_COMPILE"),
            "fast_moe_cold_start": False,
        },
        missing=Missing.NONE,
    )
    parallel = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "data_parallel_rank": 0,
        "prefill_context_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "enable_expert_parallel": False,
        "use_sequence_parallel_moe": False,
        "enable_eplb": False,
        "enable_dbo": False,
        "all2all_backend": "allgather_reducescatter",
        "expert_placement_strategy": "linear",
        "eplb_config": Given("eplb_config", {"num_redundant_experts": 0}, missing=Missing.NONE),
    }
    return Given(
        "vllm_config",
        {
            "model_config": target,
            "speculative_config": speculative,
            "compilation_config": compilation,
            "parallel_config": Given("parallel_config", parallel, missing=Missing.NONE),
            "cache_config": Given(
                "cache_config",
                {"cache_dtype": "auto", "block_size": 16, "mamba_cache_mode": "none"},
                missing=Missing.NONE,
            ),
            "scheduler_config": Given(
                "scheduler_config",
                {"max_num_batched_tokens": 8192, "max_num_seqs": 256},
                missing=Missing.NONE,
            ),
            "kernel_config": Given(
                "kernel_config", {"moe_backend": "auto", "linear_backend": "auto"}, missing=Missing.NONE
            ),
            "attention_config": Given(
                "attention_config", {"sparse_mla_prefill_workspace_factor": 5}, missing=Missing.NONE
            ),
            "additional_config": {},
            "device_config": Given("device_config", {"device": "cuda", "device_type": "cuda"}),
            "lora_config": None,
            "quant_config": None,
        },
        missing=Missing.NONE,
    )


def model_config(name: str, content: Mapping[str, Any], method: str | None) -> Given:
    """One model's part of it.

    Args:
        name: how conditions call it.
        content: its config.json.
        method: vLLM's name of the quantisation; None for none, or where vLLM is to find it.
    """
    config = pretrained_config(with_defaults(content), f"{name}.hf_config")
    text = config.attributes.get("text_config")
    holder = text.attributes if isinstance(text, Given) else config.attributes
    return Given(
        name,
        {
            "hf_config": config,
            "hf_text_config": text if isinstance(text, Given) else config,
            "dtype": Named(PARTS, "bfloat16"),
            "quantization": method,
            "multimodal_config": None,
            "max_model_len": 32768,
            "use_mla": holder.get("kv_lora_rank") is not None,
            "is_moe": True,
        },
        missing=Missing.NONE,
    )


def with_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what its class and vLLM's reader add to the file, at both levels.

    That is whether embedding and output are tied, and the rotary parameters in the form of newer files.
    """
    filled = {"tie_word_embeddings": False, **content}
    nested = content.get("text_config")
    if isinstance(nested, Mapping):
        inner = {"tie_word_embeddings": filled["tie_word_embeddings"], **nested}
        filled["text_config"] = _with_rotary(inner)
        return filled
    return _with_rotary(filled)


def _with_rotary(content: dict[str, Any]) -> dict[str, Any]:
    if isinstance(content.get("rope_parameters"), Mapping):
        return content
    scaling = content.get("rope_scaling")
    rotary = {"rope_type": "default", "rope_theta": content.get("rope_theta", 10_000.0)}
    if isinstance(scaling, Mapping):
        rotary.update(scaling)
        rotary["rope_type"] = scaling.get("rope_type", scaling.get("type", "default"))
    return {**content, "rope_parameters": rotary}
