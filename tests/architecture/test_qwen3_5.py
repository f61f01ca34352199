"""Configs of the Qwen3.5 line and Qwen3-Next as specs, and configs that make no sense."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import (
    AttentionSpec,
    DenseMlpSpec,
    GatedDeltaNetSpec,
    ModelSpec,
    MoeSpec,
    MtpSpec,
    RotarySpec,
    VisionSpec,
)
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.errors import ConfigError, UnknownArchitecture
from tests.support.checkpoints import CheckpointOptions, Family, Sizes, write_checkpoint
from tests.support.public_configs import config_files, public_config, public_config_files

MOE_397B = "Qwen_Qwen3.5-397B-A17B"
DENSE_9B = "Qwen_Qwen3.5-9B"
FLAT_2T = "Qwen_Qwen3.8-2.4T-A95B-FP8"
NEXT = "Qwen_Qwen3-Next-80B-A3B-Instruct"


def changed(name: str, path: str, value: Any) -> ModelSpec:
    """The spec of a release with one field changed; `...` removes it."""
    config = copy.deepcopy(public_config(name))
    *outer, key = path.split(".")
    holder = config
    for part in outer:
        holder = holder[part]
    if value is ...:
        holder.pop(key, None)
    else:
        holder[key] = value
    return spec_from_config(config_files(config))


def test_the_headline_model() -> None:
    spec = spec_from_config(public_config_files(MOE_397B))
    attention = AttentionSpec(num_heads=32, num_key_value_heads=2, head_dim=256, gated=True)
    moe = MoeSpec(512, 10, 1024, 1024)
    assert (spec.family, spec.architecture) == ("qwen3_5", "Qwen3_5MoeForConditionalGeneration")
    assert (spec.hidden_size, spec.vocab_size, spec.max_position) == (4096, 248320, 262144)
    assert len(spec.layers) == 60
    assert [i for i, layer in enumerate(spec.layers) if layer.mixer == attention] == list(range(3, 60, 4))
    assert spec.layers[0].mixer == GatedDeltaNetSpec(16, 64, 128, 128, 4)
    assert {layer.mlp for layer in spec.layers} == {moe}
    assert spec.mtp == MtpSpec(1, spec.layers[3], "text_config.mtp_num_hidden_layers")
    assert spec.rotary == RotarySpec(1e7, 64, mrope_section=(11, 11, 10))
    assert spec.vision == VisionSpec(27, 1152, 4304, 16, 3, 16, 2, 2, 2304, 4096)
    assert (spec.tie_word_embeddings, spec.text_prefix) == (False, "model.language_model.")
    assert (spec.end_token_ids, spec.image_token_ids) == ((248044,), (248056, 248057))


def test_a_flat_release() -> None:
    spec = spec_from_config(public_config_files(FLAT_2T))
    assert (spec.text_prefix, spec.vision, len(spec.layers)) == ("model.", None, 92)
    assert spec.mtp is not None
    assert spec.mtp.declared_at == "mtp_num_hidden_layers"


def test_qwen3_next_fuses_projections_and_says_nothing_about_its_head() -> None:
    spec = spec_from_config(public_config_files(NEXT))
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, GatedDeltaNetSpec)
    assert mixer.fused_projections
    assert spec.mtp is not None
    assert (spec.mtp.num_layers, spec.mtp.declared_at) == (1, None)
    assert spec.rotary == RotarySpec(1e7, 64)


def test_a_silent_config_has_a_head_without_a_field_and_zero_has_none() -> None:
    field = "text_config.mtp_num_hidden_layers"
    silent = changed(MOE_397B, field, ...)
    assert silent.mtp is not None
    assert silent.mtp.declared_at is None
    assert changed(MOE_397B, field, 0).mtp is None


@pytest.mark.parametrize(
    ("top", "text", "tied"),
    [(..., ..., False), (True, ..., True), (False, True, True), (True, False, False), (..., True, True)],
)
def test_tying_is_looked_up_in_text_config_then_at_the_top(top: Any, text: Any, tied: bool) -> None:
    config = public_config(DENSE_9B)
    for holder, value in ((config, top), (config["text_config"], text)):
        holder.pop("tie_word_embeddings", None)
        if value is not ...:
            holder["tie_word_embeddings"] = value
    assert spec_from_config(config_files(config)).tie_word_embeddings is tied


def test_layer_types_may_be_left_to_the_interval() -> None:
    written_out = spec_from_config(public_config_files(MOE_397B))
    assert changed(MOE_397B, "text_config.layer_types", ...).layers == written_out.layers
    every_layer = changed(DENSE_9B, "text_config.layer_types", ["full_attention"] * 32)
    assert all(isinstance(layer.mixer, AttentionSpec) for layer in every_layer.layers)


def test_dense_layers_among_experts() -> None:
    config = public_config(NEXT) | {"mlp_only_layers": [0, 5], "decoder_sparse_step": 1}
    spec = spec_from_config(config_files(config))
    assert [i for i, layer in enumerate(spec.layers) if isinstance(layer.mlp, DenseMlpSpec)] == [0, 5]
    assert spec.mtp is not None
    assert isinstance(spec.mtp.layer.mlp, MoeSpec)
    every_second = spec_from_config(config_files(public_config(NEXT) | {"decoder_sparse_step": 2}))
    assert [isinstance(layer.mlp, MoeSpec) for layer in every_second.layers[:4]] == [False, True, False, True]


def test_end_tokens_come_from_the_generation_config_first() -> None:
    config = public_config(MOE_397B)
    both = spec_from_config(config_files(config, generation_config={"eos_token_id": [248046, 248044]}))
    assert both.end_token_ids == (248046, 248044)
    assert spec_from_config(config_files(config, generation_config={})).end_token_ids == (248044,)


def test_the_architecture_follows_from_the_model_type_when_its_list_is_missing() -> None:
    assert changed(MOE_397B, "architectures", ...).architecture == "Qwen3_5MoeForConditionalGeneration"
    assert changed(NEXT, "architectures", ...).architecture == "Qwen3NextForCausalLM"


ROTARY: dict[str, tuple[dict[str, Any], RotarySpec]] = {
    "flat": ({"rope_theta": 1e6, "partial_rotary_factor": 0.5}, RotarySpec(1e6, 128)),
    "nothing": ({}, RotarySpec(1e7, 64)),
    "null": ({"rope_scaling": None, "rope_parameters": None}, RotarySpec(1e7, 64)),
    "both, the new form counts": (
        {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
        RotarySpec(1e7, 64),
    ),
    "old linear": (
        {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 4.0}},
        RotarySpec(1e6, 64, "linear", 4.0, original_max_position=262144),
    ),
    "yarn": (
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e7,
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "beta_fast": 16,
                "attention_factor": 1.2,
                "mrope_section": [11, 11, 10],
            }
        },
        RotarySpec(1e7, 64, "yarn", 4.0, 32768, 16.0, 1.0, 1.2, (11, 11, 10)),
    ),
    "mrope as a type": (
        {"rope_scaling": {"type": "mrope", "mrope_section": [11, 11, 10]}},
        RotarySpec(1e7, 64, mrope_section=(11, 11, 10)),
    ),
}


@pytest.mark.parametrize("case", ROTARY)
def test_rotary_fields_old_and_new(case: str) -> None:
    fields, expected = ROTARY[case]
    config = public_config(DENSE_9B)
    text = config["text_config"]
    for key in ("rope_parameters", "rope_theta", "rope_scaling", "partial_rotary_factor"):
        text.pop(key, None)
    text.update(fields)
    assert spec_from_config(config_files(config)).rotary == expected


ABSURD: list[tuple[str, Any, str]] = [
    ("text_config.hidden_size", -4096, "expected an integer from 1 to 1048576, found -4096"),
    ("text_config.hidden_size", 0, "found 0"),
    ("text_config.hidden_size", 2**40, "found 1099511627776"),
    ("text_config.hidden_size", "4096", "found '4096'"),
    ("text_config.hidden_size", 4096.0, "found 4096.0"),
    ("text_config.hidden_size", ..., "the field is missing"),
    ("text_config.vocab_size", 10**9, "expected an integer"),
    ("text_config.num_hidden_layers", 10**6, "expected an integer from 1 to 1024"),
    ("text_config.num_hidden_layers", 61, "60 entries for 61 layers"),
    ("text_config.layer_types", ["full_attention"] * 59, "59 entries for 60 layers"),
    ("text_config.layer_types", ["full_attention"] * 61, "61 entries for 60 layers"),
    ("text_config.layer_types", ["mamba"] * 60, "expected linear_attention or full_attention, found 'mamba'"),
    ("text_config.layer_types", [1] * 60, "a list of at most 1024 texts"),
    ("text_config.num_key_value_heads", 5, "32 attention heads do not divide into 5 groups"),
    ("text_config.num_key_value_heads", 0, "expected an integer"),
    ("text_config.linear_num_value_heads", 50, "50 value heads do not divide by 16 key heads"),
    ("text_config.num_experts", 0, "expected an integer from 1 to 65536"),
    ("text_config.num_experts_per_tok", 513, "expected an integer from 1 to 512, found 513"),
    ("text_config.moe_intermediate_size", None, "found null"),
    ("text_config.rms_norm_eps", 0, "expected a number"),
    ("text_config.rms_norm_eps", ..., "the field is missing"),
    ("text_config.rope_parameters.rope_theta", 0, "expected a number from 1"),
    ("text_config.rope_parameters.partial_rotary_factor", 2.0, "expected a number from 0 to 1"),
    ("text_config.rope_parameters.partial_rotary_factor", 0.13, "0.13 of 256 dimensions is no even number"),
    ("text_config.rope_parameters.rope_type", "su", "expected one of default, linear, yarn, found 'su'"),
    ("text_config.mtp_num_hidden_layers", 10**6, "expected an integer from 0 to 64"),
    ("text_config.max_position_embeddings", 2**60, "expected an integer"),
    ("text_config", ..., "expected an object"),
    ("text_config", [], "expected an object, found a list of 0"),
    ("vision_config.depth", -1, "vision_config.depth: expected an integer"),
    ("tie_word_embeddings", "no", "expected true or false"),
    ("architectures", [], "architectures"),
    ("architectures", "Qwen", "expected a list"),
]


@pytest.mark.parametrize(("path", "value", "message"), ABSURD)
def test_absurd_fields_are_refused_by_path(path: str, value: Any, message: str) -> None:
    if path == "architectures" and value == []:
        # An empty list falls back on the model type.
        assert changed(MOE_397B, path, value).hidden_size == 4096
        return
    with pytest.raises(ConfigError) as caught:
        changed(MOE_397B, path, value)
    assert message in str(caught.value)
    assert str(caught.value).startswith("config.json: ")
    assert path in str(caught.value) or "layer_types" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["deepseek-ai_DeepSeek-R1", "Qwen_Qwen3.8-Flash-Next", "zai-org_GLM-4.5-Air"]
)
def test_other_architectures_are_unknown_here(name: str) -> None:
    with pytest.raises(UnknownArchitecture, match="no architecture that draftproof can plan or run"):
        spec_from_config(public_config_files(name))


def test_a_missing_config_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"there is no config\.json"):
        spec_from_config(config_files(None))


SIZES = Sizes()


@pytest.mark.parametrize("family", list(Family))
def test_generated_configs_are_read_as_written(family: Family, tmp_path: Path) -> None:
    options = CheckpointOptions(family=family, moe=True, tied=True)
    spec = spec_from_config(open_checkpoint(str(write_checkpoint(tmp_path / "c", options).folder)).config)
    assert spec.hidden_size == SIZES.hidden
    assert spec.text_prefix == options.text_prefix
    assert spec.tie_word_embeddings
    assert len(spec.end_token_ids) == 2
    assert (spec.vision is not None) is (family is Family.QWEN3_5)
    mlp = spec.layers[0].mlp
    assert isinstance(mlp, MoeSpec)
    assert (mlp.num_experts, mlp.experts_per_token) == (SIZES.experts, SIZES.experts_per_token)


def test_every_field_of_a_release_may_be_null_or_wrong_without_a_crash() -> None:
    """Whatever is done to one field, the answer is a spec or a ConfigError."""
    config = public_config(MOE_397B)
    paths = [*config, *(f"text_config.{key}" for key in config["text_config"])]
    for path in paths:
        for value in (None, -1, 0, 1.5, "x", [], [[]], {}, True, 2**70):
            try:
                changed(MOE_397B, path, value)
            except (ConfigError, UnknownArchitecture):
                continue


@pytest.mark.parametrize("field", ["mscale", "mscale_all_dim", "truncate"])
def test_a_rotary_field_that_is_not_implemented_is_refused_not_ignored(field: str) -> None:
    config = public_config(DENSE_9B)
    scaling = {"rope_type": "yarn", "rope_theta": 1e7, "factor": 4.0, field: 1}
    config["text_config"]["rope_parameters"] = scaling
    with pytest.raises(ConfigError, match=rf"rope_parameters\.{field}: .* not implemented"):
        spec_from_config(config_files(config))
