"""What public config files declare about the head and the trunk, and how that compares with the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.config import ConfigFiles
from draftproof.checkpoint.precision import Precision, decide, group_by_module
from draftproof.checkpoint.quantization import QuantizationDeclaration, disagreement, read_declarations
from draftproof.errors import ConfigError
from tests.support import faults
from tests.support.checkpoints import (
    ALL_PRECISIONS,
    MTP_NVFP4,
    NVFP4_ROUTED,
    CheckpointOptions,
    write_checkpoint,
)
from tests.support.public_configs import config_files, public_config_files

FC = "mtp.fc"
HEAD_QUERY = "mtp.layers.0.self_attn.q_proj"
HEAD_EXPERT = "mtp.layers.0.mlp.experts.5.down_proj"
HEAD_FUSED = "mtp.layers.0.mlp.experts.gate_up_proj"
HEAD_UP = "mtp.layers.0.mlp.up_proj"
QUERY = "model.language_model.layers.3.self_attn.q_proj"
EXPERT = "model.language_model.layers.3.mlp.experts.5.down_proj"
UP = "model.language_model.layers.3.mlp.up_proj"
LATE_UP = "model.language_model.layers.60.mlp.up_proj"
GDN = "model.language_model.layers.0.linear_attn.out_proj"
LM_HEAD = "lm_head"

PLAIN = None
BLOCK, TENSOR, CHANNEL = Precision.FP8_BLOCK, Precision.FP8_TENSOR, Precision.FP8_CHANNEL
NVFP4, COMPRESSED, GPTQ = Precision.NVFP4_MODELOPT, Precision.NVFP4_COMPRESSED, Precision.GPTQ


def declaration(files: ConfigFiles, file: str = "config.json") -> QuantizationDeclaration:
    return next(found for found in read_declarations(files) if found.file == file)


def of_config(content: dict[str, Any]) -> QuantizationDeclaration:
    return declaration(config_files({"model_type": "qwen3_5", "quantization_config": content}))


@pytest.mark.parametrize(
    ("release", "file", "expected"),
    [
        # Only mtp.fc is listed: the head's layer is FP8.
        (
            "Qwen_Qwen3.5-27B-FP8",
            "config.json",
            {FC: PLAIN, HEAD_QUERY: BLOCK, HEAD_UP: BLOCK, UP: BLOCK, GDN: BLOCK, LM_HEAD: PLAIN},
        ),
        (
            "Qwen_Qwen3.5-122B-A10B-FP8",
            "config.json",
            {FC: PLAIN, HEAD_QUERY: BLOCK, HEAD_EXPERT: BLOCK, HEAD_FUSED: BLOCK, EXPERT: BLOCK},
        ),
        # Everything but the routed experts is listed.
        (
            "Qwen_Qwen3.8-2.4T-A95B-FP8",
            "config.json",
            {FC: PLAIN, HEAD_QUERY: PLAIN, HEAD_EXPERT: BLOCK, QUERY: PLAIN, EXPERT: BLOCK, LM_HEAD: PLAIN},
        ),
        # V1: the head's layer is excluded and mtp.fc is not.
        (
            "nvidia_Qwen3.5-397B-A17B-NVFP4",
            "config.json",
            {FC: NVFP4, HEAD_QUERY: PLAIN, HEAD_EXPERT: PLAIN, QUERY: PLAIN, EXPERT: NVFP4, LM_HEAD: PLAIN},
        ),
        (
            "nvidia_Qwen3.5-397B-A17B-NVFP4",
            "hf_quant_config.json",
            {FC: NVFP4, HEAD_QUERY: PLAIN, HEAD_EXPERT: PLAIN, GDN: PLAIN, EXPERT: NVFP4},
        ),
        (
            "nvidia_Qwen3.5-122B-A10B-NVFP4",
            "config.json",
            {FC: PLAIN, HEAD_EXPERT: PLAIN, HEAD_FUSED: PLAIN, EXPERT: NVFP4, QUERY: PLAIN},
        ),
        (
            "nvidia_Qwen3.5-397B-A17B-NVFP4-V2",
            "hf_quant_config.json",
            {FC: PLAIN, HEAD_EXPERT: PLAIN, EXPERT: NVFP4, GDN: TENSOR, QUERY: TENSOR, LM_HEAD: PLAIN},
        ),
        (
            "nvidia_Qwen3.6-27B-NVFP4",
            "hf_quant_config.json",
            {FC: PLAIN, HEAD_UP: PLAIN, UP: NVFP4, GDN: TENSOR, LM_HEAD: NVFP4},
        ),
        (
            "community_Qwen3.5-122B-A10B-NVFP4-ct",
            "config.json",
            {FC: PLAIN, HEAD_QUERY: COMPRESSED, HEAD_EXPERT: COMPRESSED, EXPERT: COMPRESSED, LM_HEAD: PLAIN},
        ),
        # Two groups: the FP8 group, which names layers 56 to 63, comes first.
        (
            "unsloth_Qwen3.6-27B-NVFP4",
            "config.json",
            {FC: PLAIN, HEAD_UP: PLAIN, UP: COMPRESSED, LATE_UP: Precision.UNKNOWN, GDN: Precision.UNKNOWN},
        ),
        (
            "RedHatAI_Qwen3.5-9B-quantized.w4a16",
            "config.json",
            {FC: PLAIN, HEAD_UP: PLAIN, UP: Precision.INT4_PACKED, LM_HEAD: PLAIN},
        ),
        (
            "Qwen_Qwen3.5-35B-A3B-GPTQ-Int4",
            "config.json",
            {FC: PLAIN, HEAD_EXPERT: PLAIN, EXPERT: GPTQ, QUERY: PLAIN, LM_HEAD: PLAIN},
        ),
        (
            "amd_Qwen3.5-397B-A17B-MXFP4",
            "config.json",
            {FC: PLAIN, HEAD_EXPERT: PLAIN, HEAD_FUSED: PLAIN, EXPERT: Precision.UNKNOWN, LM_HEAD: PLAIN},
        ),
        ("deepseek-ai_DeepSeek-R1", "config.json", {"model.layers.61.mlp.experts.3.up_proj": BLOCK}),
    ],
)
def test_public_releases_declare(release: str, file: str, expected: dict[str, Precision | None]) -> None:
    found = declaration(public_config_files(release), file)
    assert {module: found.declared(module).precision for module in expected} == expected
    assert found.refused == ()


def test_a_plain_release_declares_nothing() -> None:
    assert read_declarations(public_config_files("Qwen_Qwen3.5-397B-A17B")) == ()


def test_both_files_are_read_and_named() -> None:
    found = read_declarations(public_config_files("nvidia_Qwen3.5-397B-A17B-NVFP4"))
    assert [(one.file, one.json_path, one.exclude_path) for one in found] == [
        ("config.json", "quantization_config", "quantization_config.ignore"),
        ("hf_quant_config.json", "quantization", "quantization.exclude_modules"),
    ]
    assert [one.cache_scheme for one in found] == ["8 bits float", "FP8"]
    assert [one.algorithm for one in found] == ["NVFP4", "NVFP4"]


def test_the_rule_that_decides_is_named() -> None:
    found = declaration(public_config_files("nvidia_Qwen3.5-397B-A17B-NVFP4"), "hf_quant_config.json")
    assert found.declared(HEAD_QUERY).rule == "quantization.exclude_modules ('mtp.layers.0*')"
    assert found.declared(FC).rule == "quantization.quant_algo NVFP4"


def test_a_quantised_head_in_a_mixed_release() -> None:
    """The routed experts of the head are FP8, whatever the trunk's last layer is."""
    found = of_config(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {"mtp.layers.0.mlp.experts": {"quant_algo": "FP8_PB_WO", "group_size": 128}},
        }
    )
    assert found.declared(HEAD_EXPERT).precision is BLOCK
    assert found.declared(HEAD_FUSED).precision is BLOCK
    assert found.declared(HEAD_QUERY).precision is None


@pytest.mark.parametrize(
    ("dynamic", "expected"),
    [
        ({}, GPTQ),
        ({"-:.*mtp.*": {}}, None),
        ({"+:.*mtp.*": {"bits": 4}}, GPTQ),
        ({".*mtp.*": {"bits": 8}}, GPTQ),
        # The first rule that matches counts.
        ({"+:.*mtp\\.fc.*": {"bits": 4}, "-:.*mtp.*": {}}, GPTQ),
        ({"-:.*mtp.*": {}, "+:.*mtp\\.fc.*": {"bits": 4}}, None),
        ({"-:^model.*": {}}, GPTQ),
    ],
)
def test_gptq_rules(dynamic: dict[str, Any], expected: Precision | None) -> None:
    found = of_config({"quant_method": "gptq", "bits": 4, "dynamic": dynamic})
    assert found.declared(FC).precision is expected


def test_gptq_leaves_the_output_head_unless_told() -> None:
    for head, expected in ((False, None), (True, GPTQ)):
        found = of_config({"quant_method": "gptq", "lm_head": head, "dynamic": {"lm_head": {}}})
        assert found.declared(LM_HEAD).precision is expected


def test_auto_round_names_blocks_and_wide_modules() -> None:
    found = of_config(
        {
            "quant_method": "auto-round",
            "packing_format": "auto_round:auto_gptq",
            "block_name_to_quantize": ["model.language_model.layers", "mtp.layers"],
            "extra_config": {"model.language_model.layers.3.self_attn": {"bits": 16}},
        }
    )
    modules = (FC, HEAD_UP, UP, QUERY, LM_HEAD)
    assert [found.declared(module).precision for module in modules] == [None, GPTQ, GPTQ, None, None]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"quant_method": "awq", "modules_to_not_convert": ["mtp", "visual"]}, {FC: None, UP: Precision.AWQ}),
        ({"quant_method": "fp8", "ignored_layers": ["mtp.fc"]}, {FC: None, UP: TENSOR, LM_HEAD: None}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["mtp"]}, {FC: None, UP: Precision.MXFP4}),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4", "ignore": ["mtp*"]}, {FC: None, UP: NVFP4}),
        ({"producer": {"name": "modelopt"}, "quant_algo": "FP8"}, {FC: TENSOR}),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "exclude_modules": ["mtp*"]}},
            {FC: None, UP: TENSOR},
        ),
        ({"bits": 4, "group_size": 64}, {FC: Precision.UNKNOWN}),
        (
            {"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["mtp"]},
            {FC: None, UP: Precision.UNKNOWN},
        ),
        (
            {
                "quant_method": "quark",
                "exclude": ["re:.*mtp.*"],
                "global_quant_config": {"weight": {"dtype": "fp4"}},
                "layer_quant_config": {
                    "*self_attn*": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}
                },
            },
            {FC: None, UP: Precision.MXFP4, QUERY: CHANNEL},
        ),
    ],
)
def test_other_formats(content: dict[str, Any], expected: dict[str, Precision | None]) -> None:
    found = of_config(content)
    assert {module: found.declared(module).precision for module in expected} == expected


def test_compressed_strategies() -> None:
    for strategy, precision in (("tensor", TENSOR), ("channel", CHANNEL), ("block", BLOCK)):
        found = of_config(
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 8, "type": "float", "strategy": strategy},
                    }
                },
            }
        )
        assert found.declared(UP).precision is precision
        assert found.declared(UP).rule == "quantization_config.config_groups.group_0.targets"


def test_the_section_may_sit_under_text_config() -> None:
    files = config_files({"text_config": {"quantization_config": {"quant_method": "fp8"}}})
    assert declaration(files).json_path == "text_config.quantization_config"


def test_hostile_expressions_are_listed_as_refused() -> None:
    found = of_config({"quant_method": "compressed-tensors", "ignore": [r"re:(a+)+$", "re:^mtp.*"]})
    assert found.refused == (r"re:(a+)+$",)
    assert found.declared(FC).precision is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"quant_method": 7}, r"quantization_config\.quant_method: expected a text"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": "mtp"},
            r"modules_to_not_convert: expected a list",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": []},
            r"quantized_layers",
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": 3}}, r"config_groups\.group_0"),
        ({"quant_method": "gptq", "dynamic": ["-:mtp"]}, r"dynamic: expected an object"),
    ],
)
def test_malformed_sections_name_the_field(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of_config(content)


def disagreements(folder: Path) -> dict[str, list[str]]:
    """File -> modules of the head and of the trunk's linears where file and disk disagree."""
    checkpoint = open_checkpoint(str(folder))
    modules = group_by_module(checkpoint.inventory.tensors.values())
    linears = [m for m in modules if m.endswith(("_proj", "mlp.gate")) or m in (FC, LM_HEAD)]
    return {
        found.file: [
            module
            for module in linears
            if disagreement(found.declared(module), decide(module, modules[module])) is not None
        ]
        for found in read_declarations(checkpoint.config)
    }


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("moe", [False, True])
def test_generated_configs_agree_with_their_tensors(precision: Any, moe: bool, tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=moe, precision=precision))
    assert not any(disagreements(made.folder).values())


def test_an_exclude_list_without_the_projection_is_found_in_both_files(tmp_path: Path) -> None:
    """The list covers the head's layer, and mtp.fc, BF16 on disk, is declared NVFP4."""
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=True, precision=NVFP4_ROUTED))
    declared = declaration(open_checkpoint(str(made.folder)).config)
    excludes = [pattern for pattern in declared.excludes if not pattern.startswith("mtp")]
    faults.set_exclude_list(made.folder, [*excludes, "mtp.layers.0*"])
    assert disagreements(made.folder) == {"config.json": [FC], "hf_quant_config.json": [FC]}


def test_a_disagreement_names_module_disk_and_rule(tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=True, precision=NVFP4_ROUTED))
    faults.set_exclude_list(made.folder, ["lm_head"])
    checkpoint = open_checkpoint(str(made.folder))
    leaves = group_by_module(checkpoint.inventory.tensors.values())[FC]
    sentence = disagreement(declaration(checkpoint.config).declared(FC), decide(FC, leaves))
    assert sentence == "mtp.fc is BF16 on disk, but quantization_config.quant_algo NVFP4 quantises it"


def test_a_head_that_is_quantised_on_disk_and_excluded_in_the_config_is_found(tmp_path: Path) -> None:
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4)
    made = write_checkpoint(tmp_path / "checkpoint", options)
    assert not any(disagreements(made.folder).values())
    declared = declaration(open_checkpoint(str(made.folder)).config)
    faults.set_exclude_list(made.folder, [*declared.excludes, "mtp*"])
    for modules in disagreements(made.folder).values():
        assert HEAD_QUERY in modules
        assert FC not in modules
    leaves = group_by_module(open_checkpoint(str(made.folder)).inventory.tensors.values())[HEAD_QUERY]
    excluded = declaration(open_checkpoint(str(made.folder)).config).declared(HEAD_QUERY)
    assert disagreement(excluded, decide(HEAD_QUERY, leaves)) == (
        f"{HEAD_QUERY} is NVFP4 (ModelOpt) on disk, "
        "but quantization_config.ignore ('mtp*') leaves it unquantised"
    )
