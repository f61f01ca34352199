"""The evaluator runs the real stacks' own rules: which draft architecture a target is mapped to."""

from __future__ import annotations

import ast

import pytest

from draftproof.stacks.evaluation import Evaluator, Given, Missing, Outcome, pretrained_config
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax import find_function, string_constants
from tests.support.real_stacks import real_stack

MODEL_CONFIG = "sglang/srt/configs/model_config.py"
SPECULATIVE = "vllm/config/speculative.py"


def tree_of(name: str, version: str) -> SourceTree:
    """The real source."""
    return real_stack(name, version).tree


def sglang_mapping(tree: SourceTree, evaluator: Evaluator, architecture: str) -> tuple[Outcome, ...]:
    """What `_config_draft_model` does for one architecture."""
    text = Given(
        "hf_text_config", {"mtp_num_experts": 8, "mtp_num_experts_per_tok": 2}, missing=Missing.UNKNOWN
    )
    config = pretrained_config(
        {
            "architectures": [architecture],
            "num_nextn_predict_layers": 1,
            "text_config": {"num_attention_heads": 8},
        }
    )
    model = Given(
        "model_config",
        {
            "hf_config": config,
            "hf_text_config": text,
            "is_draft_model": True,
            "speculative_algorithm": "EAGLE",
        },
        missing=Missing.UNKNOWN,
    )
    return evaluator.call(MODEL_CONFIG, "ModelConfig._config_draft_model", model)


@pytest.mark.parametrize(("version", "mappings"), [("0.5.9", 18), ("0.5.12", 23), ("0.5.23", 37)])
def test_sglang_maps_as_many_architectures_as_its_source_says(version: str, mappings: int) -> None:
    tree = tree_of("sglang", version)
    evaluator = Evaluator(tree)
    found: dict[str, set[str]] = {}
    for architecture in sorted(architectures_named(tree)):
        for outcome in sglang_mapping(tree, evaluator, architecture):
            assert outcome.has_returned, (architecture, outcome.raised, outcome.not_understood)
            model = outcome.given["model_config"]
            drafts = model.attributes["hf_config"].attributes["architectures"]
            if drafts != [architecture]:
                found.setdefault(architecture, set()).add(drafts[0])
    assert len(found) == mappings, sorted(found)
    assert found["Qwen3_5MoeForConditionalGeneration"] == {"Qwen3_5ForCausalLMMTP"}
    assert found["Glm4MoeForCausalLM"] == {"Glm4MoeForCausalLMNextN"}
    assert ("Qwen3_5MoeForCausalLM" in found) == (version == "0.5.23")


def architectures_named(tree: SourceTree) -> set[str]:
    """The architectures that the function compares with."""
    definition = find_function(tree, MODEL_CONFIG, "ModelConfig._config_draft_model")
    assert definition is not None
    names = {text for text, _ in string_constants(MODEL_CONFIG, definition.node)}
    for node in ast.walk(tree.syntax(MODEL_CONFIG)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MIMO_V2_MODEL_ARCHS":
            names |= {text for text, _ in string_constants(MODEL_CONFIG, node.value)}
    return {
        name
        for name in names
        if name[0].isupper() and not name.isupper() and " " not in name and "." not in name
    }


VLLM = [
    ("0.33.0", "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_mtp", "Qwen3_5MoeMTP", 1),
    ("0.33.0", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen3_5_mtp", "Qwen3_5MoeMTP", 1),
    ("0.26.0", "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_mtp", "Qwen3_5MoeMTP", None),
    (
        "0.26.0",
        "qwen3_5_moe_text",
        "Qwen3_5MoeForCausalLM",
        "qwen3_5_moe_text",
        "Qwen3_5MoeForCausalLM",
        None,
    ),
    ("0.19.0", "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_mtp", "Qwen3_5MoeMTP", None),
    ("0.33.0", "qwen3_next", "Qwen3NextForCausalLM", "qwen3_next_mtp", "Qwen3NextMTP", 1),
    ("0.33.0", "deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_mtp", "DeepSeekMTPModel", 1),
    ("0.33.0", "glm_moe_dsa", "GlmMoeDsaForCausalLM", "deepseek_mtp", "DeepseekV32MTPModel", 1),
    ("0.26.0", "glm_moe_dsa", "GlmMoeDsaForCausalLM", "deepseek_mtp", "DeepSeekMTPModel", 1),
    ("0.33.0", "glm4_moe", "Glm4MoeForCausalLM", "glm4_moe_mtp", "Glm4MoeMTPModel", 1),
    ("0.33.0", "mimo", "MiMoForCausalLM", "mimo_mtp", "MiMoMTPModel", 1),
    ("0.33.0", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie_mtp", "ErnieMTPModel", 1),
    ("0.33.0", "hy_v3", "HYV3ForCausalLM", "hy_v3_mtp", "HYV3MTPModel", 1),
    ("0.33.0", "moe", "Unrelated", "pangu_ultra_moe_mtp", "OpenPanguMTPModel", 1),
    ("0.33.0", "llama", "LlamaForCausalLM", "llama", "LlamaForCausalLM", None),
]


@pytest.mark.parametrize(("version", "model_type", "target", "draft_type", "draft", "depth"), VLLM)
def test_vllm_rewrites_the_config_as_its_source_says(
    version: str, model_type: str, target: str, draft_type: str, draft: str, depth: int | None
) -> None:
    text = {"mtp_num_hidden_layers": 1, "num_attention_heads": 8, "model_type": "text"}
    content = {"model_type": model_type, "architectures": [target], "num_nextn_predict_layers": 1}
    if model_type.startswith("qwen3_5"):
        content |= text if model_type.endswith("_text") else {"text_config": text}
        content["model_type"] = model_type
        del content["num_nextn_predict_layers"]
    (outcome,) = Evaluator(tree_of("vllm", version)).call(
        SPECULATIVE, "SpeculativeConfig.hf_config_override", pretrained_config(content)
    )
    assert outcome.has_returned, (outcome.raised, outcome.not_understood)
    config = outcome.returned
    assert config.attributes["model_type"] == draft_type
    assert config.attributes["architectures"] == [draft]
    assert config.attributes.get("n_predict") == depth
    if draft != target:
        place = config.place_of("architectures")
        assert place is not None
        assert draft in "".join(
            tree_of("vllm", version).text(place.file).splitlines()[place.line - 1 : place.line + 9]
        )
