"""The table of families, and what a config says about its head."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.architecture.families import FAMILIES, HeadKind
from draftproof.architecture.registry import MtpDeclaration, detect_family, mtp_declaration
from draftproof.checkpoint.config import ConfigReader
from draftproof.errors import ConfigError, UnknownArchitecture
from tests.support.public_configs import fact_table, public_config, public_config_names


def reader(config: dict[str, Any]) -> ConfigReader:
    return ConfigReader("config.json", "", config)


def declared(config: dict[str, Any]) -> MtpDeclaration:
    return mtp_declaration(reader(config))


def test_every_family_of_the_fact_table_is_there() -> None:
    """By its model types; GGUF and the speculators format have none that a config could carry."""
    known = {model_type for family in FAMILIES for model_type in family.model_types}
    for row in fact_table("_families"):
        if row["model_types"] not in (["-"], ["speculator config"]):
            assert set(row["model_types"]) <= known, row["family"]
    assert {family.title for family in FAMILIES} >= {
        row["family"] for row in fact_table("_families") if row["model_types"] == ["-"]
    }
    assert len(FAMILIES) == len(fact_table("_families"))


def test_keys_and_model_types_are_unique() -> None:
    keys = [family.key for family in FAMILIES]
    types = [model_type for family in FAMILIES for model_type in family.model_types]
    assert len(set(keys)) == len(keys)
    assert len(set(types)) == len(types)


@pytest.mark.parametrize("name", public_config_names())
def test_every_public_config_is_of_a_known_family(name: str) -> None:
    assert detect_family(reader(public_config(name))).title


RELEASES = {
    "Qwen_Qwen3.5-397B-A17B": ("qwen3_5", 1, "text_config.mtp_num_hidden_layers"),
    "Qwen_Qwen3.8-2.4T-A95B-FP8": ("qwen3_5", 1, "mtp_num_hidden_layers"),
    "gittensor_Qwen3.8-27B-NVFP4-RTX5090": ("qwen3_5", 0, "text_config.mtp_num_hidden_layers"),
    "Qwen_Qwen3-Next-80B-A3B-Instruct": ("qwen3_next", None, None),
    "Qwen_Qwen3.8-Flash-Next": ("qwen4_exp", 1, "text_config.mtp_num_hidden_layers"),
    "deepseek-ai_DeepSeek-R1": ("deepseek_v3", 1, "num_nextn_predict_layers"),
    "deepseek-ai_DeepSeek-V4-Flash-0731": ("deepseek_v4", 1, "num_nextn_predict_layers"),
    "zai-org_GLM-4.5-Air": ("glm4_moe", 1, "num_nextn_predict_layers"),
    "zai-org_GLM-5.1": ("glm_moe_dsa", 1, "num_nextn_predict_layers"),
    "XiaomiMiMo_MiMo-V2.6-Flash-RL": ("mimo_v2", 3, "num_nextn_predict_layers"),
    "MiniMaxAI_MiniMax-M2": ("minimax_m2", 3, "num_mtp_modules"),
    "MiniMaxAI_MiniMax-M3": ("minimax_m3", 1, "text_config.num_nextn_predict_layers"),
}


@pytest.mark.parametrize("name", RELEASES)
def test_releases_declare(name: str) -> None:
    found = declared(public_config(name))
    assert (found.family.key, found.count, found.json_path) == RELEASES[name]
    assert found.conflicts == ()


def test_a_silent_release_of_a_family_that_ships_a_head_expects_one() -> None:
    assert declared(public_config("Qwen_Qwen3-Next-80B-A3B-Instruct")).expected_layers == 1
    assert declared({"model_type": "longcat_flash"}).expected_layers == 1
    assert declared({"model_type": "qwen3_5"}).expected_layers == 0


NESTED, TOP = "text_config.mtp_num_hidden_layers", "mtp_num_hidden_layers"


@pytest.mark.parametrize(
    ("top", "nested", "count", "path", "conflict"),
    [
        (1, None, 1, TOP, False),
        (None, 1, 1, NESTED, False),
        (1, 1, 1, NESTED, False),
        (2, 1, 1, NESTED, True),
        (0, 1, 1, NESTED, True),
        (1, 0, 0, NESTED, True),
        (None, None, None, None, False),
    ],
)
def test_top_level_and_text_config(
    top: int | None, nested: int | None, count: int | None, path: str | None, conflict: bool
) -> None:
    config: dict[str, Any] = {"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": nested}}
    if top is not None:
        config["mtp_num_hidden_layers"] = top
    found = declared(config)
    assert (found.count, found.json_path, bool(found.conflicts)) == (count, path, conflict)
    if conflict:
        assert found.conflicts == (f"{NESTED} is {nested} and {TOP} is {top}",)
    assert len(found.fields) == (top is not None) + (nested is not None)


def test_fields_of_different_names_may_differ() -> None:
    """MiniMax-M3 counts seven modules beside one layer: both are reported, neither is wrong."""
    found = declared(public_config("MiniMaxAI_MiniMax-M3"))
    assert [(field.json_path, field.value) for field in found.fields] == [
        ("text_config.num_nextn_predict_layers", 1),
        ("text_config.num_mtp_modules", 7),
    ]


def test_a_switch_that_is_off_means_no_head() -> None:
    config = {"model_type": "minimax_m2", "use_mtp": False, "num_mtp_modules": 3}
    found = declared(config)
    assert (found.count, found.json_path) == (0, "use_mtp")
    assert found.conflicts == ("use_mtp is false and num_mtp_modules is 3",)
    assert declared({**config, "num_mtp_modules": 0}).conflicts == ()


def test_nested_fields_of_other_families() -> None:
    found = declared({"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 2}})
    assert (found.count, found.json_path) == (2, "mtp_config.num_nextn_predict_layers")
    flash = {"model_type": "qwen4_exp", "text_config": {"mtp": {"num_hidden_layers": 1}}}
    assert declared(flash).json_path == "text_config.mtp.num_hidden_layers"


def test_a_list_of_another_length_than_the_head_is_a_conflict() -> None:
    config = {"model_type": "dots3_note", "num_nextn_predict_layers": 2, "mtp_layer_types": ["a"]}
    assert declared(config).conflicts == ("mtp_layer_types has 1 entries and num_nextn_predict_layers is 2",)
    assert declared({**config, "mtp_layer_types": ["a", "b"]}).conflicts == ()


def test_drafts_that_are_no_mtp_head_are_told_apart() -> None:
    assert detect_family(reader({"model_type": "deepseek_v41"})).head is HeadKind.OTHER_DRAFT
    assert detect_family(reader({"model_type": "gemma4_assistant"})).head is HeadKind.ASSISTANT
    assistant = declared({"model_type": "gemma4_assistant", "backbone_hidden_size": 2560})
    assert [(field.json_path, field.value) for field in assistant.fields] == [("backbone_hidden_size", 2560)]
    speculators = {"model_type": "qwen3", "speculators_model_type": "mtp", "num_nextn_predict_layers": 1}
    assert declared(speculators).family.key == "speculators"


def test_the_model_type_may_be_known_at_one_level_only() -> None:
    assert detect_family(reader({"text_config": {"model_type": "qwen3_5_text"}})).key == "qwen3_5"
    assert (
        detect_family(reader({"model_type": "custom", "text_config": {"model_type": "glm4_moe"}})).key
        == "glm4_moe"
    )
    assert detect_family(reader({"model_type": "exaone4_5_vl"})).key == "exaone"


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(UnknownArchitecture, match="model_type 'llama' is of no family"):
        detect_family(reader({"model_type": "llama"}))
    with pytest.raises(ConfigError, match="model_type: expected the name of an architecture"):
        detect_family(reader({}))


@pytest.mark.parametrize("value", [-1, 65, True, "1", 1.0, [1], {}])
def test_counts_that_make_no_sense_name_their_path(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"text_config\.mtp_num_hidden_layers: expected an integer"):
        declared({"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": value}})
