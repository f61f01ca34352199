"""What people found in SGLang's sources about registration, drafts and loading, found again by our queries.

What a static reading cannot establish is listed in docs/facts-out-of-reach.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from draftproof.links.landing_claims import has_wrong_precision
from draftproof.stacks.code_facts import Fate, HeadSupport
from draftproof.stacks.evaluation.evaluator import Evaluator, single
from draftproof.stacks.evaluation.settings import Given, Settings
from draftproof.stacks.evaluation.values import Missing
from draftproof.stacks.sglang.code.draft_config import MODEL_CONFIG, draft_architecture
from draftproof.stacks.sglang.code.head_support import head_support
from draftproof.stacks.sglang.code.noticing import LOADER
from draftproof.stacks.sglang.code.registry import MODELS, REGISTRY, registered_architectures, registration
from draftproof.stacks.sglang.code.surroundings import installed, surroundings, with_stand_ins
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from tests.stacks.sglang.code.draft_table import DRAFTS, NOT_MAPPED
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release, with_config, with_head

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")
MODELOPT = "sglang/srt/layers/quantization/modelopt_quant.py"
FP8 = "sglang/srt/layers/quantization/fp8.py"


def tree(version: str) -> SourceTree:
    return real_stack("sglang", version).tree


@cache
def evaluator(version: str) -> Evaluator:
    settings = Settings(decide=installed, labels_traced=frozenset())
    return Evaluator(with_stand_ins(tree(version)), surroundings(), settings)


def called(version: str, file: str, name: str, *arguments: Any) -> Any:
    outcome = single(evaluator(version).call(file, name, *arguments))
    assert outcome is not None
    assert outcome.raised is None, outcome.raised
    return outcome.returned


def line(version: str, file: str, number: int) -> str:
    return tree(version).text(file).splitlines()[number - 1]


# 1.1 The registry.


@pytest.mark.parametrize(("version", "count"), [("0.5.9", 178), ("0.5.12", 211), ("0.5.23", 290)])
def test_the_registry_has_as_many_names(version: str, count: int) -> None:
    names = registered_architectures(tree(version))
    assert len(names) == count
    assert all(len(places) == 1 for places in names.values())


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (18, "class _ModelRegistry"),
        (120, "SGLANG_DISABLED_MODEL_ARCHS"),
        (154, "SGLANG_EXTERNAL_MODEL_PACKAGE"),
    ],
)
def test_the_registry_reads_its_environment(number: int, words: str) -> None:
    near = "\n".join(tree("0.5.23").text(REGISTRY).splitlines()[number - 2 : number + 3])
    assert words in near


def test_an_unknown_architecture_falls_back_to_transformers() -> None:
    registry = Given(
        "registry",
        {"models": {"A": None}},
        REGISTRY,
        "_ModelRegistry",
        missing=Missing.UNKNOWN,
    )
    names = called("0.5.23", REGISTRY, "_ModelRegistry._normalize_archs", registry, ["B"])
    assert names == ["TransformersForCausalLM"]


# 1.2 and 1.3 The draft's architecture.


@pytest.mark.parametrize("version", VERSIONS)
def test_every_target_becomes_its_draft_and_the_draft_is_registered(version: str) -> None:
    for target, draft in DRAFTS[version].items():
        found = mapped(version, target)
        assert found.value == draft, f"{target}: {found.sentence}"
        assert registration(tree(version), draft).is_found, draft


def mapped(version: str, architecture: str) -> Any:
    config = {
        "architectures": [architecture],
        "num_hidden_layers": 4,
        "num_nextn_predict_layers": 1,
        "text_config": {
            "architectures": [architecture],
            "num_attention_heads": 4,
            "mtp_local_layer_ids": [],
            "mtp_num_experts": 4,
            "mtp_num_experts_per_tok": 2,
        },
    }
    return draft_architecture(tree(version), evaluator(version), config, architecture)


def test_the_table_has_as_many_rows() -> None:
    assert [len(DRAFTS[version]) for version in VERSIONS] == [18, 23, 37]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("architecture", NOT_MAPPED)
def test_others_stay_as_they_are_without_a_word(version: str, architecture: str) -> None:
    found = mapped(version, architecture)
    assert found.understood
    assert not found.is_found


@pytest.mark.parametrize(("version", "number"), [("0.5.9", 328), ("0.5.12", 475), ("0.5.23", 1179)])
def test_the_line_that_maps_qwen(version: str, number: int) -> None:
    found = mapped(version, "Qwen3_5MoeForConditionalGeneration")
    assert (found.places[0].file, found.places[0].line) == (MODEL_CONFIG, number)


@pytest.mark.parametrize(("version", "number"), [("0.5.9", 251), ("0.5.12", 391), ("0.5.23", 956)])
def test_a_draft_without_a_path_is_the_target(version: str, number: int) -> None:
    assert "model_path or" in line(version, MODEL_CONFIG, number)


# 1.4 and 3.3 How the head is built.


def supported(version: str, release: str) -> HeadSupport:
    return head_support(tree(version), served_release(release), Situation())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_projection_is_plain_in_a_quantised_head(version: str) -> None:
    landings = supported(version, "Qwen_Qwen3.5-397B-A17B-FP8").landings.value
    assert landings is not None
    built = {landing.tensor: landing.built for landing in landings}
    assert built["mtp.fc.weight"] == "BF16"
    assert built["mtp.layers.0.self_attn.q_proj.weight"] == "FP8 (block scales)"
    assert built["mtp.layers.0.mlp.experts.{e}.gate_proj.weight"] == "FP8 (block scales)"


@pytest.mark.parametrize("version", VERSIONS)
def test_embedding_and_output_head_are_the_targets(version: str) -> None:
    support = supported(version, "nvidia_Qwen3.5-397B-A17B-NVFP4")
    assert support.head_precision.value is not None
    assert support.head_precision.value.startswith("BF16")
    assert support.unwritten.value == ()
    glm = supported(version, "zai-org_GLM-4.5-Air").landings.value
    assert glm is not None
    shared = {landing.tensor for landing in glm if landing.fate is Fate.SHARED}
    assert shared == {"model.layers.46.embed_tokens.weight", "model.layers.46.shared_head.head.weight"}


def test_older_versions_have_to_be_told_of_modelopts_fp4() -> None:
    told = supported("0.5.9", "nvidia_Qwen3.5-397B-A17B-NVFP4").head_precision.value
    assert told == "BF16 with --quantization modelopt_fp4"
    assert supported("0.5.12", "nvidia_Qwen3.5-397B-A17B-NVFP4").head_precision.value == "BF16"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_packed_head_in_modelopts_fp4_is_built_plain_all_the_same(version: str) -> None:
    """Its tensors do not fit; one that has too few columns is filled up with zeros, without a word."""
    checkpoint = served_release("nvidia_Qwen3.5-122B-A10B-NVFP4")
    packed = {
        name: replace(tensor, dtype="U8", shape=(tensor.shape[0], tensor.shape[1] // 2))
        for name, tensor in checkpoint.head.items()
        if ".self_attn.o_proj." in name
    }
    changed = replace(checkpoint, head={**checkpoint.head, **packed})
    support = head_support(tree(version), changed, Situation())
    assert support.landings.value is not None
    landing = next(entry for entry in support.landings.value if ".o_proj." in entry.tensor)
    assert landing.fate is Fate.REFUSED or has_wrong_precision(landing)
    assert support.unwritten.value
    assert support.unwritten.value[0].name.startswith("model.layers.0.o_proj.weight")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_head_of_qwen3_next_in_a_quantised_checkpoint_does_not_fit(version: str) -> None:
    """No rule looks at how the head is stored, and a list of mtp.* does not reach its modules."""
    checkpoint = served_release("Qwen_Qwen3-Next-80B-A3B-Instruct")
    section = dict(served_release("nvidia_Qwen3.5-122B-A10B-NVFP4").config["quantization_config"])
    section["ignore"] = ["lm_head", "mtp*"]
    packed = with_config(checkpoint, quantization_config=section)
    support = head_support(tree(version), packed, Situation())
    assert support.landings.value is not None
    lost = [landing for landing in support.landings.value if landing.fate is not Fate.LANDS]
    assert any("experts" in landing.tensor or "self_attn" in landing.tensor for landing in lost)


# 3.1 Detection of a quantisation.


@pytest.mark.parametrize(
    ("version", "algorithm", "layers", "method"),
    [
        ("0.5.23", "MIXED_PRECISION", {"a": {"quant_algo": "NVFP4"}}, "modelopt_mixed"),
        ("0.5.23", "MIXED_PRECISION", {"a": {"quant_algo": "FP8"}}, "w4afp8"),
        ("0.5.12", "MIXED_PRECISION", {"a": {"quant_algo": "NVFP4"}}, "w4afp8"),
        ("0.5.9", "MIXED_PRECISION", {"a": {"quant_algo": "NVFP4"}}, "w4afp8"),
        ("0.5.23", "NVFP4", {}, "modelopt_fp4"),
        ("0.5.23", "FP8", {}, "modelopt_fp8"),
        ("0.5.23", "MXFP8", {}, "mxfp8"),
        ("0.5.12", "NVFP4", {}, "modelopt_fp4"),
    ],
)
def test_modelopts_algorithms_become_methods(
    version: str, algorithm: str, layers: dict[str, Any], method: str
) -> None:
    section = {"quantization": {"quant_algo": algorithm, "quantized_layers": layers}}
    parsed = called(
        version,
        MODEL_CONFIG,
        "ModelConfig._parse_modelopt_quant_config",
        Given("model_config", {"hf_config": Given("hf_config", {})}, MODEL_CONFIG, "ModelConfig"),
        section,
    )
    assert parsed["quant_method"] == method


@pytest.mark.parametrize(("name", "least"), [("ModelOptFp4Config", 80), ("ModelOptFp8Config", 89)])
def test_methods_ask_for_a_capability(name: str, least: int) -> None:
    assert called("0.5.23", MODELOPT, f"{name}.get_min_capability") == least


# 3.2 Lists of modules that are not quantised.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("pattern", "prefix", "excluded"),
    [
        ("mtp*", "mtp.layers.0.mlp.experts", True),
        ("mtp*", "model.layers.0.mlp.experts", False),
        ("mtp*", "model.decoder.mlp.experts", False),
        ("mtp*", "model.shared_head.head", False),
        ("model.layers.92*", "model.decoder.mlp.experts", False),
        ("mtp.layers.0*", "mtp.layers.0.self_attn.qkv_proj", True),
    ],
)
def test_lists_are_compared_with_sglangs_own_names(
    version: str, pattern: str, prefix: str, excluded: bool
) -> None:
    config = Given("quant_config", {"exclude_modules": [pattern]}, MODELOPT, "ModelOptQuantConfig")
    answer = called(version, MODELOPT, "ModelOptQuantConfig.is_layer_excluded", config, prefix)
    assert answer is excluded


@pytest.mark.parametrize("file", ["deepseek_nextn", "glm4_moe_nextn", "glm4_moe_lite_nextn", "glm_ocr_nextn"])
def test_other_heads_are_plain_in_modelopts_fp4_too(file: str) -> None:
    number = {"deepseek_nextn": 75, "glm4_moe_nextn": 52, "glm4_moe_lite_nextn": 55, "glm_ocr_nextn": 54}[
        file
    ]
    assert 'get_name() == "modelopt_fp4"' in line("0.5.23", f"{MODELS}/{file}.py", number)


# 3.4 What nobody notices.


@pytest.mark.parametrize("version", VERSIONS)
def test_six_calls_drop_what_was_loaded(version: str) -> None:
    text = tree(version).text(LOADER).splitlines()
    dropped = [
        number for number, words in enumerate(text, 1) if words.strip().startswith("model.load_weights(")
    ]
    assert len(dropped) == 6
    if version == "0.5.23":
        assert dropped == [1063, 1257, 2922, 3120, 3452, 3522]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_under_a_foreign_prefix_is_lost_and_its_experts_without_a_word(version: str) -> None:
    checkpoint = with_head(
        served_release("Qwen_Qwen3.5-122B-A10B"), lambda name: name.replace("mtp.", "model.mtp.", 1)
    )
    landings = head_support(tree(version), checkpoint, Situation()).landings.value
    assert landings is not None
    assert all(landing.fate in (Fate.SKIPPED_SILENTLY, Fate.SKIPPED_WITH_LOG) for landing in landings)
    experts = [landing for landing in landings if ".experts." in landing.tensor]
    assert {landing.fate for landing in experts} == {Fate.SKIPPED_SILENTLY}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_layer_of_another_number_is_passed_over(version: str) -> None:
    checkpoint = with_head(
        served_release("zai-org_GLM-4.5-Air"), lambda name: name.replace("layers.46.", "layers.47.")
    )
    landings = head_support(tree(version), checkpoint, Situation()).landings.value
    assert landings is not None
    assert {landing.fate for landing in landings} == {Fate.SKIPPED_SILENTLY, Fate.SHARED}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_with_one_tensor_missing_leaves_one_parameter(version: str) -> None:
    checkpoint = with_head(
        served_release("Qwen_Qwen3.5-9B"),
        lambda name: None if name == "mtp.pre_fc_norm_hidden.weight" else name,
    )
    unwritten = head_support(tree(version), checkpoint, Situation()).unwritten.value
    assert unwritten is not None
    assert [parameter.name for parameter in unwritten] == ["pre_fc_norm_hidden.weight"]


def test_an_expert_that_is_missing_is_named() -> None:
    gone = "mtp.layers.0.mlp.experts.77.up_proj.weight"
    checkpoint = with_head(
        served_release("Qwen_Qwen3.5-122B-A10B"), lambda name: None if name == gone else name
    )
    unwritten = head_support(tree("0.5.23"), checkpoint, Situation()).unwritten.value
    assert unwritten is not None
    assert [parameter.name for parameter in unwritten] == [f"{gone} (no such tensor)"]
