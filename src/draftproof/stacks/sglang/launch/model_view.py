"""The checkpoint as SGLang's handling of arguments gets to see it: a model config without its constructor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftproof.stacks.evaluation import Evaluator, Given, Missing, Named, Unknown, pretrained_config, single
from draftproof.stacks.served_checkpoint import ServedCheckpoint

MODEL_CONFIG = "sglang/srt/configs/model_config.py"
PARSER = "ModelConfig._parse_quant_hf_config"
CONFIG = "hf_config"
MODEL = "model_config"
_CONTEXT_FIELD = "max_position_embeddings"


def model_view(evaluator: Evaluator, checkpoint: ServedCheckpoint) -> Given:
    """The object that takes the place of `ModelConfig`.

    Args:
        evaluator: runs the version's own reading of the quantisation section, which may rewrite it.
        checkpoint: the subject.
    """
    config = dict(checkpoint.config)
    section = _read_quantization(evaluator, checkpoint)
    if section is not None:
        config["quantization_config"] = section
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, Mapping) else config
    is_latent = isinstance(inner.get("kv_lora_rank"), int)
    hf_config = pretrained_config(config, CONFIG)
    text_config = hf_config.attributes.get("text_config", hf_config)
    window = inner.get("sliding_window")
    return Given(
        MODEL,
        {
            "hf_config": hf_config,
            "hf_text_config": text_config,
            "attention_arch": Named(MODEL_CONFIG, f"AttentionArch.{'MLA' if is_latent else 'MHA'}"),
            "is_multimodal": "vision_config" in config,
            "is_hybrid_swa": False if window is None else Unknown("model_config.is_hybrid_swa"),
            "is_generation": True,
            "is_embedding": False,
            "is_encoder_decoder": False,
            "is_piecewise_cuda_graph_disabled_model": False,
            "is_multimodal_breakable_cuda_graph_supported": True,
            "decision_config": None,
            "joint_head_config": None,
            "attention_chunk_size": None,
            "is_multimodal_chunked_prefill_supported": True,
            "has_attention_sinks": False,
            "has_asymmetric_kv": False,
            "context_len": context_length(checkpoint) or Unknown("model_config.context_len"),
            "model_path": checkpoint.name,
        },
        missing=Missing.UNKNOWN,
    )


def context_length(checkpoint: ServedCheckpoint) -> int | None:
    """Tokens of context that the config promises; None when it does not say."""
    text = checkpoint.config.get("text_config")
    for section in (text, checkpoint.config):
        if isinstance(section, Mapping):
            value = section.get(_CONTEXT_FIELD)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def checked_model(checkpoint: ServedCheckpoint, attributes: Mapping[str, Any]) -> Given:
    """An object of the version's own class, for one of its methods.

    Args:
        checkpoint: the subject.
        attributes: further attributes.
    """
    hf_config = pretrained_config(checkpoint.config, CONFIG)
    return Given(
        MODEL,
        {
            "hf_config": hf_config,
            "hf_text_config": hf_config.attributes.get("text_config", hf_config),
            "model_path": checkpoint.name,
            "revision": None,
            "is_draft_model": False,
            "is_draft_quantization_explicit": False,
            **attributes,
        },
        file=MODEL_CONFIG,
        class_name="ModelConfig",
        missing=Missing.UNKNOWN,
    )


def _read_quantization(evaluator: Evaluator, checkpoint: ServedCheckpoint) -> dict[str, Any] | None:
    """The quantisation section after the version's own reading of it; None when there is nothing to read."""
    section = checkpoint.config.get("quantization_config")
    if not isinstance(section, Mapping):
        return None
    subject = checked_model(checkpoint, {})
    outcome = single(evaluator.call(MODEL_CONFIG, PARSER, subject))
    if outcome is None or not outcome.has_returned or CONFIG not in outcome.given:
        return None
    read = outcome.given[CONFIG].attributes.get("quantization_config")
    return dict(read) if isinstance(read, dict) else None
