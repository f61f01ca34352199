"""Which draft architecture each version makes of which target: as the sources were read by people."""

from __future__ import annotations

from collections.abc import Mapping

_IN_ALL = {
    "DeepseekV3ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "Glm4MoeForCausalLM": "Glm4MoeForCausalLMNextN",
    "GlmOcrForConditionalGeneration": "GlmOcrForConditionalGenerationNextN",
    "LongcatFlashForCausalLM": "LongcatFlashForCausalLMNextN",
    "MiMoForCausalLM": "MiMoMTP",
    "MiMoV2FlashForCausalLM": "MiMoV2MTP",
    "Step3p5ForCausalLM": "Step3p5MTP",
    "BailingMoeForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2ForCausalLM": "BailingMoeForCausalLMNextN",
    "BailingMoeV2_5ForCausalLM": "BailingMoeForCausalLMNextN",
    "Ernie4_5_MoeForCausalLM": "Ernie4_5_MoeForCausalLMMTP",
    "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "ExaoneMoEForCausalLM": "ExaoneMoEForCausalLMMTP",
    "NemotronHForCausalLM": "NemotronHForCausalLMMTP",
}
_OLD = {
    **_IN_ALL,
    "GlmMoeDsaForCausalLM": "DeepseekV3ForCausalLMNextN",
    "Glm4MoeLiteForCausalLM": "Glm4MoeForCausalLMNextN",
}
_SINCE_0_5_12 = {
    "DeepseekV32ForCausalLM": "DeepseekV3ForCausalLMNextN",
    "DeepseekV4ForCausalLM": "DeepseekV4ForCausalLMNextN",
    "MiMoV2ForCausalLM": "MiMoV2MTP",
    "InternS2PreviewForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "HYV3ForCausalLM": "HYV3ForCausalLMNextN",
}
_NEW = {
    **_IN_ALL,
    **_SINCE_0_5_12,
    "GlmMoeDsaForCausalLM": "GlmMoeDsaForCausalLMNextN",
    "Glm4MoeLiteForCausalLM": "Glm4MoeLiteForCausalLMNextN",
    "Glm5NextForConditionalGeneration": "Glm5NextForConditionalGenerationNextN",
    "Step3p7ForConditionalGeneration": "Step3p5MTP",
    "InklingForConditionalGeneration": "InklingForConditionalGenerationMTP",
    "GigaChat35ForCausalLM": "GigaChat35ForCausalLMNextN",
    "BailingMoeV3ForCausalLM": "BailingMoeForCausalLMNextN",
    "Qwen4ExpForConditionalGeneration": "Qwen4ExpForCausalLMMTP",
    "Qwen3MoeForCausalLM": "Qwen3MoeForCausalLMMTP",
    "Qwen3_5ForCausalLM": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForCausalLM": "Qwen3_5ForCausalLMMTP",
    "InternS2MobiusForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "ExaoneMoeForCausalLM": "ExaoneMoEForCausalLMMTP",
    "NemotronH_Omni_Reasoning_V3": "NemotronHForCausalLMMTP",
    "NemotronHPuzzleForCausalLM": "NemotronHForCausalLMMTP",
    "HYV4ForCausalLM": "HYV4ForCausalLMNextN",
}

DRAFTS: Mapping[str, Mapping[str, str]] = {
    "0.5.9": _OLD,
    "0.5.12": {**_OLD, **_SINCE_0_5_12},
    "0.5.23": _NEW,
}
"""Version -> target -> draft."""

NOT_MAPPED = (
    "KimiK2ForCausalLM",
    "MiniMaxM2ForCausalLM",
    "GptOssForCausalLM",
    "Llama4ForConditionalGeneration",
)
"""Targets that need a draft checkpoint of their own in every version."""
