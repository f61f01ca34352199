"""Which draft vLLM makes of which target, as people found it in the sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One target: fields of its config, its draft architecture, and the depth that its config gives."""

    config: Mapping[str, Any]
    draft: str
    depth: int | None


def _typed(model_type: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": ["Target"], **fields}


def _named(architecture: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": "any_type", "architectures": [architecture], **fields}


_NEXTN = {"num_nextn_predict_layers": 1}
_TEXT = {
    "text_config": {
        "model_type": "text",
        "num_attention_heads": 4,
        "mtp_num_hidden_layers": 1,
        "num_nextn_predict_layers": 2,
    }
}

NEWEST = (
    Row(_typed("qwen3_5", **_TEXT), "Qwen3_5MTP", 1),
    Row(_typed("qwen3_5_moe", **_TEXT), "Qwen3_5MoeMTP", 1),
    Row(_typed("qwen3_5_text", mtp_num_hidden_layers=1), "Qwen3_5MTP", 1),
    Row(_typed("qwen3_5_moe_text", mtp_num_hidden_layers=1), "Qwen3_5MoeMTP", 1),
    Row(_typed("qwen3_next"), "Qwen3NextMTP", None),
    Row(_typed("qwen3_next", **_NEXTN), "Qwen3NextMTP", 1),
    Row(
        _typed(
            "qwen4_exp", text_config={"hc_count": 2, "num_attention_heads": 4, "mtp_num_hidden_layers": 1}
        ),
        "Qwen4ExpMTP",
        1,
    ),
    Row(_typed("intern_s2_preview", **_TEXT), "Qwen3_5MTP", 1),
    Row(_typed("deepseek_v3", **_NEXTN), "DeepSeekMTPModel", 1),
    Row(_typed("deepseek_v32", **_NEXTN), "DeepseekV32MTPModel", 1),
    Row(_typed("glm_moe_dsa", **_NEXTN), "DeepseekV32MTPModel", 1),
    Row(_typed("deepseek_v4", **_NEXTN), "DeepSeekV4MTPModel", 1),
    Row(_named("Glm4MoeForCausalLM", **_NEXTN), "Glm4MoeMTPModel", 1),
    Row(_named("Glm4MoeLiteForCausalLM", **_NEXTN), "Glm4MoeLiteMTPModel", 1),
    Row(_named("GlmOcrForConditionalGeneration", **_NEXTN), "GlmOcrMTPModel", 1),
    Row(_typed("glm5_next", **_TEXT), "Glm5NextMTPModel", 2),
    Row(_named("MiMoForCausalLM", **_NEXTN), "MiMoMTPModel", 1),
    Row(_named("MiMoV2ForCausalLM", num_nextn_predict_layers=3), "MiMoV2MTPModel", 1),
    Row(_named("MiMoV2FlashForCausalLM", num_nextn_predict_layers=3), "MiMoV2MTPModel", 1),
    Row(_named("MiMoV2OmniForCausalLM"), "MiMoV2OmniMTPModel", 1),
    Row(_typed("ernie4_5_moe", **_NEXTN), "ErnieMTPModel", 1),
    Row(_typed("nemotron_h", **_NEXTN), "NemotronHMTPModel", 1),
    Row(_typed("exaone_moe", **_NEXTN), "ExaoneMoeMTP", 1),
    Row(_typed("my_exaone4_5_vl", **_NEXTN), "Exaone4_5_MTP", 1),
    Row(_typed("bailing_hybrid", **_NEXTN), "BailingMoeV25MTPModel", 1),
    Row(_named("BailingMoeV3ForCausalLM", **_NEXTN), "BailingMoeV3MTPModel", 1),
    Row(_typed("longcat_flash"), "LongCatFlashMTPModel", 1),
    Row(_typed("step3p5", num_nextn_predict_layers=3), "Step3p5MTP", 3),
    Row(_typed("step3p7", **_TEXT), "Step3p5MTP", 2),
    Row(_typed("step5", **_NEXTN), "Step5MTP", 1),
    Row(_typed("kimi_k3", **_TEXT), "KimiK3MTPModel", 2),
    Row(_typed("pangu_ultra_moe", **_NEXTN), "OpenPanguMTPModel", 1),
    Row(_typed("hy_v3", **_NEXTN), "HYV3MTPModel", 1),
    Row(_typed("hy_v4", **_NEXTN), "HYV4MTPModel", 1),
    Row(
        _typed("inkling_model", mtp_config={"num_nextn_predict_layers": 2}, text_config={"model_type": "t"}),
        "InklingMTPModel",
        2,
    ),
    Row(_typed("gemma4_assistant", **_TEXT), "Gemma4MTPModel", 1),
    Row(_typed("minimax_m3_vl", text_config={"num_mtp_modules": 7}), "MiniMaxM3MTP", 7),
    Row(_typed("dots3_note", layer_types=["full_attention"]), "Dots3NoteMTPModel", 1),
)
"""Of 0.33.0."""
