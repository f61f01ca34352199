"""config.json and generation_config.json of a generated checkpoint, in the shape of the public ones."""

from __future__ import annotations

from typing import Any

from tests.support.checkpoint_options import CheckpointOptions, Family, Sizes
from tests.support.checkpoint_precision import Encoding
from tests.support.tiny_tokenizer import END_OF_TEXT, IMAGE_PAD, TURN_END, VIDEO_PAD, VISION_END, VISION_START


def model_config(options: CheckpointOptions) -> dict[str, Any]:
    """config.json without its quantization_config."""
    if options.family is Family.QWEN3_NEXT:
        return _qwen3_next(options)
    if options.family is Family.QWEN3_5_TEXT:
        suffix = "Moe" if options.moe else ""
        flat = _text_config(options)
        # The flat releases have no multimodal rotary keys.
        for key in ("mrope_section", "mrope_interleaved"):
            flat["rope_parameters"].pop(key)
        return {"architectures": [f"Qwen3_5{suffix}ForCausalLM"], **flat, "tie_word_embeddings": options.tied}
    return _nested(options)


def generation_config() -> dict[str, Any]:
    """generation_config.json: two end tokens, where config.json names only one."""
    return {
        "bos_token_id": END_OF_TEXT,
        "do_sample": True,
        "eos_token_id": [TURN_END, END_OF_TEXT],
        "pad_token_id": END_OF_TEXT,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
    }


def _nested(options: CheckpointOptions) -> dict[str, Any]:
    moe = options.moe
    return {
        "architectures": [f"Qwen3_5{'Moe' if moe else ''}ForConditionalGeneration"],
        "image_token_id": IMAGE_PAD,
        "model_type": "qwen3_5_moe" if moe else "qwen3_5",
        "text_config": _text_config(options),
        "tie_word_embeddings": options.tied,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": VIDEO_PAD,
        "vision_config": _vision_config(options),
        "vision_end_token_id": VISION_END,
        "vision_start_token_id": VISION_START,
    }


def _text_config(options: CheckpointOptions) -> dict[str, Any]:
    sizes = options.sizes
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        **_common(options),
        "dtype": _dtype(options),
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "model_type": "qwen3_5_moe_text" if options.moe else "qwen3_5_text",
        "mtp_num_hidden_layers": 1 if options.mtp else 0,
        "mtp_use_dedicated_embeddings": False,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": _mrope_section(sizes),
            "partial_rotary_factor": sizes.partial_rotary_factor,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        **(_moe_fields(sizes) if options.moe else {"intermediate_size": sizes.intermediate}),
    }


def _qwen3_next(options: CheckpointOptions) -> dict[str, Any]:
    sizes = options.sizes
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT,
        "decoder_sparse_step": 1,
        **_common(options),
        "intermediate_size": sizes.intermediate,
        "mlp_only_layers": [],
        "model_type": "qwen3_next",
        "norm_topk_prob": True,
        "output_router_logits": False,
        "partial_rotary_factor": sizes.partial_rotary_factor,
        "rope_scaling": None,
        "rope_theta": 10000000,
        **_moe_fields(sizes),
        "tie_word_embeddings": options.tied,
        "torch_dtype": _dtype(options),
        "transformers_version": "4.57.0.dev0",
    }


def _common(options: CheckpointOptions) -> dict[str, Any]:
    sizes = options.sizes
    return {
        "eos_token_id": END_OF_TEXT,
        "full_attention_interval": sizes.full_attention_interval,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "initializer_range": 0.02,
        "layer_types": list(sizes.layer_types),
        "linear_conv_kernel_dim": sizes.conv_kernel,
        "linear_key_head_dim": sizes.linear_key_head_dim,
        "linear_num_key_heads": sizes.linear_key_heads,
        "linear_num_value_heads": sizes.linear_value_heads,
        "linear_value_head_dim": sizes.linear_value_head_dim,
        "max_position_embeddings": 4096,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.key_value_heads,
        "rms_norm_eps": 1e-06,
        "use_cache": True,
        "vocab_size": sizes.vocab,
    }


def _moe_fields(sizes: Sizes) -> dict[str, Any]:
    return {
        "moe_intermediate_size": sizes.expert_intermediate,
        "num_experts": sizes.experts,
        "num_experts_per_tok": sizes.experts_per_token,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": sizes.shared_intermediate,
    }


def _vision_config(options: CheckpointOptions) -> dict[str, Any]:
    sizes = options.sizes
    return {
        "deepstack_visual_indexes": [],
        "depth": sizes.vision_depth,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": sizes.vision_hidden,
        "in_channels": 3,
        "initializer_range": 0.02,
        "intermediate_size": sizes.vision_intermediate,
        "model_type": "qwen3_5_moe" if options.moe else "qwen3_5",
        "num_heads": sizes.vision_heads,
        "num_position_embeddings": sizes.vision_positions,
        "out_hidden_size": sizes.hidden,
        "patch_size": sizes.vision_patch,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }


def _mrope_section(sizes: Sizes) -> list[int]:
    """Three parts, as even as possible, of the rotating pairs of dimensions."""
    pairs = int(sizes.head_dim * sizes.partial_rotary_factor) // 2
    return [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3]


def _dtype(options: CheckpointOptions) -> str:
    return "float32" if options.recipe.base is Encoding.FP32 else "bfloat16"
