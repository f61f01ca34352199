"""Every family with an MTP head that is known, as data: config fields and names of the head's tensors.

The facts come from public config files, loaders and issue reports; `notes` says what is unusual.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class HeadKind(Enum):
    """What the tensors that a family's field counts are."""

    MTP = "MTP head"
    """A multi-token-prediction head inside the target's checkpoint."""
    OTHER_DRAFT = "other draft stages"
    """Draft stages of another kind: engines refuse to run them as an MTP head."""
    ASSISTANT = "separate assistant"
    """A checkpoint of its own that drafts for a target elsewhere."""


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
        key: short name, stable in reports.
        title: for people.
        model_types: values of `model_type`; a trailing `*` stands for anything.
        count_fields: config fields that count the head's layers, the first that is there counts.
        places: objects that may hold them, in the order in which they count; "" is the top level.
        switch_field: a boolean that must be true as well; "" when there is none.
        related_fields: other fields that say something about the head, for the report.
        count_when_silent: layers of the head in released checkpoints whose config says nothing; 0: no head.
        head: what the tensors are.
        prefixes: where the head's tensors lie. `{trunk}` is the prefix of the trunk's layers on disk,
            `{layer}` is num_hidden_layers + i, `{i}` is i, the number of the head's layer.
        required: modules (no `.weight`) without which there is no head, relative to the prefix with a layer
            number, or whole names when they begin with `=`.
        block: sub-prefix of the decoder block inside a head layer ("" or "transformer.").
        notes: what is unusual.
    """

    key: str
    title: str
    model_types: tuple[str, ...]
    count_fields: tuple[str, ...]
    places: tuple[str, ...]
    prefixes: tuple[str, ...]
    required: tuple[str, ...] = ()
    switch_field: str = ""
    related_fields: tuple[str, ...] = ()
    count_when_silent: int = 0
    head: HeadKind = HeadKind.MTP
    block: str = ""
    notes: str = ""


_NEXTN = ("num_nextn_predict_layers",)
_QWEN = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
_TOP = ("",)
_NESTED = ("text_config", "")
_DEEPSEEK_HEAD = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
_QWEN_HEAD = ("=mtp.fc", "=mtp.norm", "=mtp.pre_fc_norm_embedding", "=mtp.pre_fc_norm_hidden")

QWEN3_5 = Family(
    "qwen3_5",
    "Qwen3.5/3.6/3.8",
    ("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"),
    _QWEN,
    _NESTED,
    ("mtp.layers.{i}.", "mtp."),
    _QWEN_HEAD,
    notes="15 tensors dense, 17+3E with experts one by one, 19 with fused experts",
)
QWEN3_NEXT = Family(
    "qwen3_next",
    "Qwen3-Next",
    ("qwen3_next",),
    _QWEN,
    _TOP,
    ("mtp.layers.{i}.", "mtp."),
    _QWEN_HEAD,
    count_when_silent=1,
    notes="released configs say nothing, the weights are there: presence is decided from the tensors",
)

FAMILIES = (
    QWEN3_5,
    Family(
        "qwen4_exp",
        "Qwen3.8-Flash-Next",
        ("qwen4_exp", "qwen4_exp_text"),
        (*_QWEN, "mtp.num_hidden_layers"),
        _NESTED,
        ("mtp.layers.{i}.", "mtp."),
        ("=mtp.fc_embedding", "=mtp.fc_hidden", "=mtp.pre_fc_norm_hidden"),
        notes="two projections instead of mtp.fc, no mtp.norm",
    ),
    QWEN3_NEXT,
    Family(
        "intern_s2",
        "InternS2",
        ("intern_s2_preview", "interns2_mobius"),
        _QWEN,
        _NESTED,
        ("mtp.layers.{i}.", "mtp."),
        _QWEN_HEAD,
        related_fields=("mtp_num_experts", "mtp_num_experts_per_tok"),
        notes="the head may have another number of experts than the trunk",
    ),
    Family(
        "deepseek_v3",
        "DeepSeek-V3/R1/V3.1/V3.2",
        ("deepseek_v3", "deepseek_v32"),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        (*_DEEPSEEK_HEAD, "embed_tokens", "shared_head.head"),
        notes="the head is the layer after the last one, in block FP8",
    ),
    Family(
        "deepseek_v4",
        "DeepSeek-V4",
        ("deepseek_v4",),
        _NEXTN,
        _TOP,
        ("mtp.{i}.",),
        notes="per-layer lists of the config are longer than num_hidden_layers",
    ),
    Family(
        "deepseek_v41",
        "DeepSeek-V4.1",
        ("deepseek_v41",),
        _NEXTN,
        _NESTED,
        ("mtp.",),
        head=HeadKind.OTHER_DRAFT,
        notes="the field counts DSpark stages; engines refuse them as an MTP head",
    ),
    Family(
        "glm4_moe",
        "GLM-4.5/4.6/4.7",
        ("glm4_moe",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        _DEEPSEEK_HEAD,
        notes="4.7 ships the head in mtp.safetensors",
    ),
    Family(
        "glm4_moe_lite",
        "GLM-4.7-Flash",
        ("glm4_moe_lite",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        _DEEPSEEK_HEAD,
    ),
    Family(
        "glm_moe_dsa",
        "GLM-5/5.1/5.2",
        ("glm_moe_dsa",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        _DEEPSEEK_HEAD,
        notes="community NVFP4 exports dropped the head",
    ),
    Family(
        "glm5_next",
        "GLM-5.3-Flash",
        ("glm5_next",),
        _NEXTN,
        _NESTED,
        ("{trunk}{layer}.",),
        _DEEPSEEK_HEAD,
        notes="quantisers never instantiate the head's layer",
    ),
    Family(
        "glm_ocr",
        "GLM-OCR",
        ("glm_ocr",),
        _NEXTN,
        _NESTED,
        ("{trunk}{layer}.",),
        _DEEPSEEK_HEAD,
    ),
    Family(
        "mimo",
        "MiMo-7B",
        ("mimo",),
        _NEXTN,
        _TOP,
        ("model.mtp_layers.{i}.",),
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        notes="16 tensors a layer; concatenates hidden before embedding, the reverse of Qwen",
    ),
    Family(
        "mimo_v2",
        "MiMo-V2 Flash/Pro/2.5/2.6",
        ("mimo_v2", "mimo_v2_flash"),
        _NEXTN,
        _TOP,
        ("model.mtp.layers.{i}.", "model.mtp."),
        notes="declares 3 layers, vLLM runs the first only",
    ),
    Family(
        "ernie4_5_moe",
        "ERNIE-4.5 MoE",
        ("ernie4_5_moe",),
        _NEXTN,
        _TOP,
        ("model.mtp_block.{i}.", "model.mtp_emb_norm.", "model.mtp_hidden_norm.", "model.mtp_linear_proj."),
        ("=model.mtp_emb_norm.0", "=model.mtp_hidden_norm.0", "=model.mtp_linear_proj.0"),
    ),
    Family(
        "step3p5",
        "Step-3.5/3.7-Flash",
        ("step3p5", "step3p7"),
        _NEXTN,
        _NESTED,
        ("{trunk}{layer}.",),
        ("enorm", "hnorm", "eh_proj", "shared_head.output"),
        block="transformer.",
        notes="3 layers, each with an output head of its own; layer_types has 3 entries more than the trunk",
    ),
    Family(
        "nemotron_h",
        "Nemotron-H Super/Nano 3.5/Ultra",
        ("nemotron_h", "nemotron_h_puzzle"),
        _NEXTN,
        _NESTED,
        ("mtp.layers.{i}.", "mtp."),
        ("=mtp.layers.0.enorm", "=mtp.layers.0.hnorm", "=mtp.layers.0.eh_proj"),
        related_fields=("mtp_hybrid_override_pattern", "mtp_layers_block_type"),
        notes="a pattern such as '*E' splits one layer into sublayers mtp.layers.0 and mtp.layers.1",
    ),
    Family(
        "longcat_flash",
        "LongCat-Flash",
        ("longcat_flash",),
        _NEXTN,
        _TOP,
        ("model.mtp.layers.{i}.", "model.mtp."),
        ("enorm.m", "hnorm.m", "eh_proj", "=model.mtp.norm"),
        count_when_silent=1,
    ),
    Family(
        "bailing_hybrid",
        "Bailing/Ling 2.5 and 3",
        ("bailing_hybrid",),
        _NEXTN,
        _NESTED,
        ("{trunk}{layer}.",),
        ("enorm", "hnorm", "eh_proj"),
        notes="attention is named attention.dense",
    ),
    Family(
        "hy_v3",
        "Hunyuan HY V3",
        ("hy_v3",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        ("enorm", "hnorm", "eh_proj", "final_layernorm"),
    ),
    Family(
        "hy_v4", "Hunyuan HY V4", ("hy_v4",), _NEXTN, _TOP, ("model.mtp_layers.{i}.", "model.mtp_layers.")
    ),
    Family(
        "exaone",
        "EXAONE-MoE / EXAONE-4.5",
        ("exaone_moe", "exaone4_5*"),
        _NEXTN,
        _NESTED,
        ("mtp.layers.{i}.", "mtp."),
        notes="Qwen's prefix, other contents",
    ),
    Family(
        "kimi_k3",
        "Kimi-K3",
        ("kimi_k3",),
        _NEXTN,
        _NESTED,
        ("{trunk}{layer}.",),
        ("enorm", "hnorm", "eh_proj"),
    ),
    Family(
        "minimax_m2",
        "MiniMax-M2.x",
        ("minimax_m2",),
        ("num_mtp_modules", *_NEXTN),
        _TOP,
        ("model.mtp.layers.{i}.", "model.mtp.", "mtp.", "{trunk}{layer}."),
        switch_field="use_mtp",
        related_fields=("mtp_transformer_layers",),
        notes="declares 3 modules; released checkpoints ship none",
    ),
    Family(
        "minimax_m3",
        "MiniMax-M3",
        ("minimax_m3_vl",),
        ("num_nextn_predict_layers", "num_mtp_modules"),
        _NESTED,
        ("model.mtp.layers.{i}.", "model.mtp.", "{trunk}{layer}."),
        related_fields=("num_mtp_modules",),
        notes="num_mtp_modules is 7 beside num_nextn_predict_layers 1",
    ),
    Family(
        "pangu_ultra_moe",
        "openPangu Ultra",
        ("pangu_ultra_moe",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.",),
        ("enorm", "hnorm", "eh_proj"),
    ),
    Family(
        "dots3_note",
        "Dots3-note",
        ("dots3_note",),
        _NEXTN,
        _TOP,
        ("{trunk}{layer}.", "model.mtp."),
        ("=model.mtp.embed_tokens",),
        related_fields=("mtp_layer_types",),
        notes="mtp_layer_types must have one entry a layer of the head",
    ),
    Family(
        "inkling",
        "Inkling",
        ("inkling_mm_model", "inkling_model"),
        ("mtp_config.num_nextn_predict_layers",),
        _TOP,
        ("model.mtp.layers.{i}.", "model.mtp."),
    ),
    Family(
        "gemma4_assistant",
        "Gemma4 assistant",
        ("gemma4_assistant", "gemma4_unified_assistant"),
        (),
        _TOP,
        ("pre_projection.", "post_projection.", "model.layers.", "masked_embedding."),
        ("=pre_projection", "=post_projection"),
        related_fields=("backbone_hidden_size", "use_ordered_embeddings", "num_centroids", "block_size"),
        head=HeadKind.ASSISTANT,
        notes="a repository of its own; backbone_hidden_size must equal the target's hidden_size",
    ),
    Family(
        "speculators",
        "speculators MTP format",
        ("speculator_config",),
        _NEXTN,
        _TOP,
        ("mtp_layers.{i}.",),
        notes="recognised by the field speculators_model_type",
    ),
    Family(
        "gguf_qwen35",
        "GGUF qwen35/qwen35moe",
        (),
        ("nextn_predict_layers",),
        _TOP,
        ("blk.{layer}.nextn.", "blk.{layer}."),
        ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"),
        notes="declared in GGUF metadata, which draftproof does not read",
    ),
)
