"""Configs of the Qwen3.5 line and of Qwen3-Next -> ModelSpec.

Both are hybrids of Gated DeltaNet and gated full attention, dense or with experts. Releases differ in where a
field sits (nested under text_config, flat, or only at the top level), never in what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.architecture.families import Family, HeadKind
from draftproof.architecture.registry import detect_family, mtp_declaration, text_section
from draftproof.architecture.rotary_fields import rotary_spec
from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    GatedDeltaNetSpec,
    LayerSpec,
    ModelSpec,
    MoeSpec,
    MtpSpec,
    VisionSpec,
)
from draftproof.checkpoint.config import ConfigFiles, ConfigReader
from draftproof.errors import UnknownArchitecture

MAX_WIDTH = 2**20
MAX_VOCABULARY = 2**24
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_EXPERTS = 2**16
MAX_POSITIONS = 2**28
MAX_TOKEN_ID = MAX_VOCABULARY
LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True)
class _Release:
    """How one architecture's releases are shaped.

    Attributes:
        nested: text_config and vision_config inside, trunk under `model.language_model.`.
        moe: routed experts.
        fused_projections: Qwen3-Next's `in_proj_qkvz` and `in_proj_ba`.
    """

    nested: bool
    moe: bool
    fused_projections: bool = False


ARCHITECTURES: Mapping[str, _Release] = {
    "Qwen3_5ForConditionalGeneration": _Release(nested=True, moe=False),
    "Qwen3_5MoeForConditionalGeneration": _Release(nested=True, moe=True),
    "Qwen3_5ForCausalLM": _Release(nested=False, moe=False),
    "Qwen3_5MoeForCausalLM": _Release(nested=False, moe=True),
    "Qwen3NextForCausalLM": _Release(nested=False, moe=True, fused_projections=True),
}
"""What can be planned in full and run: `architectures[0]` of the config."""

_BY_MODEL_TYPE = {
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}


def spec_from_config(files: ConfigFiles) -> ModelSpec:
    """The model that config.json describes.

    Args:
        files: config.json, and generation_config.json for the end tokens.

    Raises:
        UnknownArchitecture: another architecture.
        ConfigError: a field is missing, has the wrong type, or makes no sense.
    """
    config = files.config.require()
    architecture = architecture_of(config)
    release = ARCHITECTURES[architecture]
    family = detect_family(config)
    if family.head is not HeadKind.MTP:
        raise UnknownArchitecture(f"{family.title} does not run as {architecture}")
    text = config.section("text_config") if release.nested else text_section(config)
    hidden_size = text.integer("hidden_size", 1, MAX_WIDTH)
    max_position = text.integer("max_position_embeddings", 1, MAX_POSITIONS)
    attention = _attention(text)
    mlps = _mlps(text, release)
    layers = _layers(text, attention, _gated_delta_net(text, release), mlps)
    return ModelSpec(
        family=family.key,
        architecture=architecture,
        model_type=config.string("model_type"),
        hidden_size=hidden_size,
        vocab_size=text.integer("vocab_size", 1, MAX_VOCABULARY),
        layers=layers,
        mtp=_mtp(config, text, family, LayerSpec(attention, mlps[-1])),
        vision=_vision(config, hidden_size) if release.nested else None,
        rotary=rotary_spec(text, attention.head_dim, max_position),
        rms_norm_eps=text.number("rms_norm_eps", 1e-12, 1e-1),
        max_position=max_position,
        tie_word_embeddings=_tied(config, text),
        text_prefix="model.language_model." if release.nested else "model.",
        end_token_ids=_end_token_ids(files, config, text),
        image_token_ids=tuple(
            config.integer(key, 0, MAX_TOKEN_ID)
            for key in ("image_token_id", "video_token_id")
            if config.has(key)
        ),
    )


def architecture_of(config: ConfigReader) -> str:
    """`architectures[0]`, or what `model_type` implies when the list is missing.

    Raises:
        UnknownArchitecture: it is none of `ARCHITECTURES`.
    """
    names = config.strings("architectures", 16)
    if not names and config.has("model_type"):
        model_type = config.string("model_type")
        names = (_BY_MODEL_TYPE.get(model_type, f"an architecture with model_type {model_type}"),)
    if not names:
        raise config.error("architectures", "a list with one architecture")
    if names[0] not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"{names[0][:80]} is no architecture that draftproof can plan or run",
            f"It can: {', '.join(ARCHITECTURES)}.",
        )
    return names[0]


def _attention(text: ConfigReader) -> AttentionSpec:
    heads = text.integer("num_attention_heads", 1, MAX_HEADS)
    key_value_heads = text.integer("num_key_value_heads", 1, MAX_HEADS)
    if heads % key_value_heads:
        raise text.refuse(
            "num_key_value_heads", f"{heads} attention heads do not divide into {key_value_heads} groups"
        )
    return AttentionSpec(
        num_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=text.integer("head_dim", 1, MAX_HEADS, default=256),
        gated=text.boolean("attn_output_gate", default=True),
        bias=text.boolean("attention_bias", default=False),
    )


def _gated_delta_net(text: ConfigReader, release: _Release) -> GatedDeltaNetSpec:
    key_heads = text.integer("linear_num_key_heads", 1, MAX_HEADS)
    value_heads = text.integer("linear_num_value_heads", 1, MAX_HEADS)
    if value_heads % key_heads:
        raise text.refuse(
            "linear_num_value_heads", f"{value_heads} value heads do not divide by {key_heads} key heads"
        )
    return GatedDeltaNetSpec(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=text.integer("linear_key_head_dim", 1, MAX_HEADS),
        value_head_dim=text.integer("linear_value_head_dim", 1, MAX_HEADS),
        conv_kernel=text.integer("linear_conv_kernel_dim", 1, 64),
        fused_projections=release.fused_projections,
    )


def _mlps(text: ConfigReader, release: _Release) -> tuple[DenseMlpSpec | MoeSpec, ...]:
    """The MLP of every layer; the last entry, one more, is the MTP head's."""
    layers = text.integer("num_hidden_layers", 1, MAX_LAYERS)
    if not release.moe:
        dense = DenseMlpSpec(text.integer("intermediate_size", 1, MAX_WIDTH))
        return (dense,) * (layers + 1)
    moe = _moe(text)
    dense_layers = set(text.integers("mlp_only_layers", 0, layers - 1, layers))
    step = text.integer("decoder_sparse_step", 1, MAX_LAYERS, default=1)
    # https://huggingface.co/docs/transformers/model_doc/qwen3_next: dense where listed or off the step.
    dense_layers |= {index for index in range(layers) if (index + 1) % step}
    if not dense_layers:
        return (moe,) * (layers + 1)
    dense = DenseMlpSpec(text.integer("intermediate_size", 1, MAX_WIDTH))
    return (*(dense if index in dense_layers else moe for index in range(layers)), moe)


def _moe(text: ConfigReader) -> MoeSpec:
    experts = text.integer("num_experts", 1, MAX_EXPERTS)
    return MoeSpec(
        num_experts=experts,
        experts_per_token=text.integer("num_experts_per_tok", 1, experts),
        intermediate_size=text.integer("moe_intermediate_size", 1, MAX_WIDTH),
        shared_intermediate_size=text.integer("shared_expert_intermediate_size", 0, MAX_WIDTH, default=0),
        normalize_top_k=text.boolean("norm_topk_prob", default=True),
    )


def _layers(
    text: ConfigReader,
    attention: AttentionSpec,
    gated_delta_net: GatedDeltaNetSpec,
    mlps: tuple[DenseMlpSpec | MoeSpec, ...],
) -> tuple[LayerSpec, ...]:
    count = len(mlps) - 1
    kinds = text.strings("layer_types", MAX_LAYERS)
    if not kinds:
        interval = text.integer("full_attention_interval", 1, MAX_LAYERS, default=4)
        kinds = tuple(LINEAR if (index + 1) % interval else FULL for index in range(count))
    if len(kinds) != count:
        raise text.refuse("layer_types", f"{len(kinds)} entries for {count} layers")
    for index, kind in enumerate(kinds):
        if kind not in (LINEAR, FULL):
            raise text.refuse(f"layer_types[{index}]", f"expected {LINEAR} or {FULL}, found {kind[:40]!r}")
    return tuple(
        LayerSpec(attention if kind == FULL else gated_delta_net, mlp)
        for kind, mlp in zip(kinds, mlps, strict=False)
    )


def _mtp(config: ConfigReader, text: ConfigReader, family: Family, layer: LayerSpec) -> MtpSpec | None:
    """The head: as declared, or one layer when the config says nothing, as engines assume."""
    declaration = mtp_declaration(config, family)
    count = 1 if declaration.count is None else declaration.count
    if count == 0:
        return None
    dedicated = text.boolean("mtp_use_dedicated_embeddings", default=False)
    return MtpSpec(count, layer, declaration.json_path, dedicated)


def _vision(config: ConfigReader, hidden_size: int) -> VisionSpec | None:
    vision = config.optional_section("vision_config")
    if vision is None:
        return None
    return VisionSpec(
        depth=vision.integer("depth", 1, MAX_LAYERS),
        hidden_size=vision.integer("hidden_size", 1, MAX_WIDTH),
        intermediate_size=vision.integer("intermediate_size", 1, MAX_WIDTH),
        num_heads=vision.integer("num_heads", 1, MAX_HEADS),
        in_channels=vision.integer("in_channels", 1, 64, default=3),
        patch_size=vision.integer("patch_size", 1, 1024, default=16),
        temporal_patch_size=vision.integer("temporal_patch_size", 1, 1024, default=2),
        spatial_merge_size=vision.integer("spatial_merge_size", 1, 64, default=2),
        num_position_embeddings=vision.integer("num_position_embeddings", 1, MAX_VOCABULARY, default=2304),
        out_hidden_size=vision.integer("out_hidden_size", 1, MAX_WIDTH, default=hidden_size),
    )


def _tied(config: ConfigReader, text: ConfigReader) -> bool:
    """text_config first, then the top level, then false: released files differ in where the field sits."""
    return text.boolean("tie_word_embeddings", default=config.boolean("tie_word_embeddings", default=False))


def _end_token_ids(files: ConfigFiles, config: ConfigReader, text: ConfigReader) -> tuple[int, ...]:
    generation = files.generation_config.optional()
    for reader in (generation, text, config):
        if reader is not None and (ids := reader.integers("eos_token_id", 0, MAX_TOKEN_ID, 64)):
            return ids
    return ()
