"""What people found in vLLM's sources about registration, drafts and loading, found again by our queries.

What a static reading cannot establish is listed in docs/facts-out-of-reach.md. Loading checks are in
test_noticing.py, known defects in test_defects.py.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from draftproof.stacks.code_facts import Fate, HeadSupport
from draftproof.stacks.evaluation import Evaluator, Given, Missing, Outcome, single
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.defect_queries import SPECULATIVE, WEIGHT_FILES
from draftproof.stacks.vllm.code.draft_mapping import draft_mapping, mtp_model_types
from draftproof.stacks.vllm.code.draft_model import draft_evaluator
from draftproof.stacks.vllm.code.head_support import head_support
from draftproof.stacks.vllm.code.quantisation import quantisation
from draftproof.stacks.vllm.code.registry import DRAFT_TABLE, REGISTRY, read_registry, registration
from draftproof.stacks.vllm.code.source_search import called_names, function_node, module_assignment
from tests.stacks.vllm.code.draft_table import NEWEST, Row
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release, with_config, with_head

VERSIONS = ("0.19.0", "0.26.0", "0.33.0")
MODELS = "vllm/model_executor/models"
MODELOPT = "vllm/model_executor/layers/quantization/modelopt.py"
CONFIGS = "vllm/transformers_utils/config.py"
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"


def tree(version: str) -> SourceTree:
    return real_stack("vllm", version).tree


@cache
def evaluator(version: str) -> Evaluator:
    return draft_evaluator(tree(version))


def called(version: str, file: str, name: str, *arguments: Any, **keywords: Any) -> Outcome:
    outcome = single(evaluator(version).call(file, name, *arguments, **keywords))
    assert outcome is not None
    return outcome


def supported(version: str, checkpoint: ServedCheckpoint | str) -> HeadSupport:
    served = served_release(checkpoint) if isinstance(checkpoint, str) else checkpoint
    return head_support(tree(version), served, Situation())


def line(version: str, file: str, number: int) -> str:
    return tree(version).text(file).splitlines()[number - 1]


# 1.1 The registry.


@pytest.mark.parametrize(
    ("table", "number"),
    [
        ("_TEXT_GENERATION_MODELS", 73),
        ("_MULTIMODAL_MODELS", 352),
        ("_SPECULATIVE_DECODING_MODELS", 655),
        ("_TRANSFORMERS_SUPPORTED_MODELS", 747),
        ("_TRANSFORMERS_BACKEND_MODELS", 784),
        ("_VLLM_MODELS", 822),
        ("_PREVIOUSLY_SUPPORTED_MODELS", 841),
    ],
)
def test_the_tables_stand_where_they_stand(table: str, number: int) -> None:
    value = module_assignment(tree("0.33.0"), REGISTRY, table)
    assert value is not None
    assert value.lineno == number


@pytest.mark.parametrize("name", ["TransformersForMTP", "TransformersMoEForMTP"])
def test_the_transformers_backend_has_drafts_of_its_own(name: str) -> None:
    entry = registration(tree("0.33.0"), name).value
    assert entry is not None
    assert entry.table == "_TRANSFORMERS_BACKEND_MODELS"


@pytest.mark.parametrize(
    ("name", "module"), [("llama", "vllm.model_executor.models.llama"), ("vllm.models.x", "vllm.models.x")]
)
def test_a_module_name_is_resolved_as_vllm_does(name: str, module: str) -> None:
    assert called("0.33.0", REGISTRY, "_resolve_module_name", name).returned == module


def test_a_second_registration_overwrites_the_first_with_a_debug_line() -> None:
    register = function_node(tree("0.33.0"), REGISTRY, "_ModelRegistry.register_model")
    assert register is not None
    assert "debug" in called_names(register)
    assert not called_names(register) & {"warning", "warning_once"}


def test_a_name_without_dots_stays_beside_the_registry_in_old_versions() -> None:
    registry = read_registry(tree("0.19.0")).value
    assert registry is not None
    assert all(entry.module.startswith("vllm.model_executor.models.") for entry in registry.entries.values())


# 1.2 and 1.3 The draft.


def mapped(version: str, config: Any) -> Any:
    checkpoint = replace(served_release("Qwen_Qwen3.5-9B"), config=config)
    return draft_mapping(tree(version), evaluator(version), checkpoint)


@pytest.mark.parametrize("row", NEWEST, ids=lambda row: f"{row.draft}-{row.config['model_type']}")
def test_every_target_becomes_its_draft_and_the_draft_is_registered(row: Row) -> None:
    found = mapped("0.33.0", row.config).value
    assert found is not None, mapped("0.33.0", row.config).sentence
    assert found.architecture == row.draft
    assert found.depth == row.depth
    entry = registration(tree("0.33.0"), row.draft).value
    assert entry is not None
    assert entry.table == DRAFT_TABLE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_of_a_model_type_is_taken_for_pangu(version: str) -> None:
    found = mapped(version, {"model_type": "moe", "architectures": ["X"], "num_nextn_predict_layers": 1})
    assert found.value is not None
    assert found.value.architecture == "OpenPanguMTPModel"


@pytest.mark.parametrize(("version", "depth"), [("0.19.0", None), ("0.26.0", None), ("0.33.0", 1)])
def test_older_versions_look_for_the_depth_at_the_top_level_only(version: str, depth: int | None) -> None:
    found = mapped(version, served_release("Qwen_Qwen3.5-27B").config)
    assert found.value is not None
    assert found.value.depth == depth


@pytest.mark.parametrize(("version", "known"), [("0.19.0", False), ("0.26.0", False), ("0.33.0", True)])
def test_text_only_models_have_a_draft_in_the_newest_version(version: str, known: bool) -> None:
    found = mapped(version, served_release("Qwen_Qwen3.8-2.4T-A95B-FP8").config)
    assert found.understood
    assert found.is_found is known


def test_a_checkpoint_of_inkling_without_a_head_is_refused() -> None:
    config = {"model_type": "inkling_model", "architectures": ["X"], "mtp_config": {}}
    found = mapped("0.33.0", config)
    assert found.understood
    assert "does not contain MTP weights" in found.sentence


@pytest.mark.parametrize(("version", "count"), [("0.19.0", 14), ("0.26.0", 21), ("0.33.0", 28)])
def test_model_types_that_count_as_mtp(version: str, count: int) -> None:
    names = mtp_model_types(tree(version), evaluator(version)).value
    assert names is not None
    assert len(names) == count
    assert "mtp" in names


@pytest.mark.parametrize(("row", "number"), [("qwen3_5", 997), ("qwen3_next", 909), ("deepseek_v3", 754)])
def test_the_line_that_maps(row: str, number: int) -> None:
    config = next(entry.config for entry in NEWEST if entry.config["model_type"] == row)
    assert mapped("0.33.0", config).places[0] == Place(SPECULATIVE, number)


def test_two_model_types_are_read_by_deepseeks_config_class() -> None:
    table = module_assignment(tree("0.33.0"), CONFIGS, "_CONFIG_REGISTRY")
    assert isinstance(table, ast.Call)
    classes = {entry.arg: ast.literal_eval(entry.value) for entry in table.keywords if entry.arg}
    assert classes["kimi_k2"] == classes["deepseek_v32"] == "DeepseekV3Config"


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [
        ("qwen3_5_mtp.py", "Qwen3_5MultiTokenPredictor.__init__", "model_config.hf_text_config"),
        ("deepseek_mtp.py", "DeepSeekMultiTokenPredictorLayer.__init__", "draft_model_config.hf_config"),
    ],
)
def test_which_config_a_head_reads(file: str, name: str, words: str) -> None:
    for version in VERSIONS:
        node = function_node(tree(version), f"{MODELS}/{file}", name)
        assert node is not None
        assert words in ast.unparse(node)


@pytest.mark.parametrize(
    ("file", "name", "tensor"),
    [
        ("qwen3_5.py", "Qwen3_5ForCausalLMBase", "mtp.fc.weight"),
        ("qwen3_5.py", "Qwen3_5ForConditionalGeneration", "mtp.fc.weight"),
        ("qwen3_next.py", "Qwen3NextForCausalLM", "mtp.fc.weight"),
    ],
)
def test_the_target_drops_the_head_without_a_word(file: str, name: str, tensor: str) -> None:
    mapper = single(evaluator("0.33.0").value(f"{MODELS}/{file}", f"{name}.hf_to_vllm_mapper"))
    assert mapper is not None
    prefixes = mapper.returned.attributes["orig_to_new_prefix"]
    assert prefixes["mtp."] is None
    assert tensor.startswith("mtp.")


@pytest.mark.parametrize("version", ["0.19.0", "0.26.0"])
def test_older_targets_skip_the_prefix(version: str) -> None:
    assert 'skip_prefixes=["mtp."]' in tree(version).text(f"{MODELS}/qwen3_5.py")


# 3.1 ModelOpt.


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        ("FP8", "modelopt"),
        ("NVFP4", "modelopt_fp4"),
        ("W4A16_NVFP4", "modelopt_fp4"),
        ("MIXED_PRECISION", "modelopt_mixed"),
    ],
)
def test_modelopts_algorithms_become_methods(algorithm: str, method: str) -> None:
    section = {"quant_method": "modelopt", "quant_algo": algorithm, "quantized_layers": {"a": {}}}
    checkpoint = with_config(served_release("Qwen_Qwen3.5-9B"), quantization_config=section)
    found = quantisation(evaluator("0.33.0"), checkpoint).value
    assert found is not None
    assert found.method == method


@pytest.mark.parametrize(
    ("name", "least"),
    [("ModelOptFp8Config", 80), ("ModelOptNvFp4Config", 75), ("ModelOptMixedPrecisionConfig", 75)],
)
def test_methods_ask_for_a_capability(name: str, least: int) -> None:
    assert called("0.33.0", MODELOPT, f"{name}.get_min_capability").returned == least


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("pattern", "prefix", "excluded"),
    [
        ("mtp.layers.0", "mtp.layers.0", True),
        ("mtp.layers.0.*", "mtp.layers.0.self_attn.o_proj", True),
        ("layers.0", "mtp.layers.0.mlp", True),
        ("mtp*", "mtp.fc", True),
        ("mtp.layers.0*", "mtp.fc", False),
        ("mtp.layers.3.", "mtp.layers.30.mlp", False),
    ],
)
def test_a_list_is_compared_by_name_part_and_pattern(
    version: str, pattern: str, prefix: str, excluded: bool
) -> None:
    config = Given(
        "quant_config",
        {"exclude_modules": [pattern], "packed_modules_mapping": {}},
        MODELOPT,
        "ModelOptQuantConfigBase",
    )
    outcome = called(version, MODELOPT, "ModelOptQuantConfigBase.is_layer_excluded", config, prefix)
    assert outcome.returned is excluded


def test_a_fused_layer_is_excluded_only_with_all_its_parts() -> None:
    parts = [f"mtp.layers.0.self_attn.{part}_proj" for part in "qkv"]
    for kept in (3, 2):
        config = Given(
            "quant_config",
            {
                "exclude_modules": parts[:kept],
                "packed_modules_mapping": {"qkv_proj": ["q_proj", "k_proj", "v_proj"]},
            },
            MODELOPT,
            "ModelOptQuantConfigBase",
        )
        outcome = called(
            "0.33.0",
            MODELOPT,
            "ModelOptQuantConfigBase.is_layer_excluded",
            config,
            "mtp.layers.0.self_attn.qkv_proj",
        )
        if kept == 3:
            assert outcome.returned is True
        else:
            assert outcome.raised is not None
            assert outcome.raised.type_name == "ValueError"


def test_a_star_at_the_end_of_a_name_stands_for_the_name_and_all_below() -> None:
    mapper = Given("mapper", methods={"apply_list": lambda self, values: values})
    config = Given("quant_config", {"exclude_modules": ["mtp*", "a.*"]}, MODELOPT, "ModelOptQuantConfigBase")
    outcome = called("0.33.0", MODELOPT, "ModelOptQuantConfigBase.apply_vllm_mapper", config, mapper)
    assert outcome.given["quant_config"].attributes["exclude_modules"] == ["mtp", "mtp.*", "a.*"]


@pytest.mark.parametrize(("inputs", "method"), [(None, "W4A16_NVFP4"), ({"num_bits": 4}, "NVFP4")])
def test_nvfp4_without_activations_is_weight_only(inputs: Any, method: str) -> None:
    section = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "config_groups": {"group_0": {"input_activations": inputs}},
    }
    outcome = called("0.33.0", MODELOPT, "ModelOptNvFp4Config.from_config", section)
    assert outcome.returned.attributes["quant_method"] == method


def test_a_quantisation_block_needs_three_fields() -> None:
    section = {"quantization": {"quant_algo": "NVFP4"}, "quant_method": "modelopt"}
    outcome = called("0.33.0", MODELOPT, "ModelOptNvFp4Config.from_config", section)
    assert outcome.raised is not None
    assert all(
        field in outcome.raised.message for field in ("group_size", "kv_cache_quant_algo", "exclude_modules")
    )


def test_which_heads_read_a_quantisation_of_their_own() -> None:
    newest = tree("0.33.0")
    files = newest.containing(MODELS, "get_draft_quant_config")
    heads = {file.rpartition("/")[2] for file in files if file.endswith("_mtp.py")}
    assert heads == {"gemma4_mtp.py", "nemotron_h_mtp.py", "step3p5_mtp.py"}


def test_lists_outlive_what_a_mapper_drops() -> None:
    """The mapper for lists only renames: the entry that says "do not load mtp" does not shorten the list."""
    mapper = Given(
        "mapper",
        {
            "orig_to_new_renaming": [],
            "orig_to_new_regex": {},
            "orig_to_new_substr": {},
            "orig_to_new_stacked": {".q_proj": (".qkv_proj", "q")},
            "orig_to_new_prefix": {"mtp.": None, "model.visual.": "visual."},
            "orig_to_new_suffix": {},
        },
        f"{MODELS}/utils.py",
        "WeightsMapper",
        missing=Missing.RAISES,
    )
    outcome = called("0.33.0", f"{MODELS}/utils.py", "WeightsMapper.get_rename_mapper", mapper)
    assert outcome.returned.attributes["orig_to_new_prefix"] == {"model.visual.": "visual."}
    assert outcome.returned.attributes["orig_to_new_stacked"] == {}


# 3.2 What heads do beyond the lists.


def test_the_headline_checkpoint_needs_the_exception_for_its_projection() -> None:
    old, new = supported("0.19.0", HEADLINE), supported("0.33.0", HEADLINE)
    assert old.landings.value is not None
    refused = [landing.tensor for landing in old.landings.value if landing.fate is Fate.REFUSED]
    assert refused == ["mtp.fc.weight"]
    assert new.landings.value is not None
    assert {landing.fate for landing in new.landings.value} == {Fate.LANDS}
    assert sum(landing.count for landing in new.landings.value) == 1553
    assert new.unwritten.value == ()


@pytest.mark.parametrize("entries", [["mtp.layers.0*"], ["mtp*"]])
def test_modelopts_fp8_has_no_exception(entries: list[str]) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", *entries]}
    checkpoint = with_config(served_release("Qwen_Qwen3.5-9B"), quantization_config=section)
    landings = supported("0.33.0", checkpoint).landings.value
    assert landings is not None
    projection = next(landing for landing in landings if landing.tensor == "mtp.fc.weight")
    assert (projection.built == "BF16") is (entries == ["mtp*"])


def test_a_mixed_quantisation_leaves_unlisted_layers_plain() -> None:
    support = supported("0.33.0", "nvidia_Qwen3.6-27B-NVFP4")
    assert support.head_precision.value == "BF16"


def test_gptq_rules_that_name_mtp_leave_the_layers_plain() -> None:
    release = "Qwen_Qwen3.5-35B-A3B-GPTQ-Int4"
    assert supported("0.33.0", release).head_precision.value == "BF16"


def test_the_output_head_of_qwen3_next_takes_no_quantisation() -> None:
    node = function_node(tree("0.33.0"), f"{MODELS}/qwen3_next_mtp.py", "Qwen3NextMTP.__init__")
    other = function_node(tree("0.33.0"), f"{MODELS}/qwen3_5_mtp.py", "Qwen3_5MTP.__init__")
    assert node is not None
    assert other is not None
    assert [_has_quantisation(each) for each in (node, other)] == [False, True]


def _has_quantisation(node: ast.FunctionDef) -> bool:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ParallelLMHead":
            return any(keyword.arg == "quant_config" for keyword in call.keywords)
    raise AssertionError("no output head")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_that_names_leaves_of_the_head_only_packs_its_experts(version: str) -> None:
    """vllm-project/vllm#41994: the experts' weights have no parameter to land in."""
    landings = supported(version, "community_Qwen3.5-122B-A10B-NVFP4-ct").landings.value
    assert landings is not None
    expert = next(landing for landing in landings if landing.tensor.endswith("{e}.down_proj.weight"))
    assert expert.fate is Fate.REFUSED
    assert "w2_weight" in expert.sentence


# 3.3 and 3.4 Strictness, and what vanishes.


def test_a_name_that_is_not_there_is_refused_but_for_a_few_endings() -> None:
    checkpoint = served_release("Qwen_Qwen3.5-9B")
    norm = checkpoint.head["mtp.norm.weight"]
    stray = {
        name: replace(norm, name=name)
        for name in ("mtp.norm.extra", "mtp.layers.0.self_attn.o_proj.bias", "mtp.rotary_emb.inv_freq")
    }
    landings = supported("0.33.0", replace(checkpoint, head={**checkpoint.head, **stray})).landings.value
    assert landings is not None
    fates = {landing.tensor: landing.fate for landing in landings if landing.tensor in stray}
    assert fates["mtp.norm.extra"] is Fate.REFUSED
    assert fates["mtp.layers.0.self_attn.o_proj.bias"] is Fate.SKIPPED_SILENTLY
    assert fates["mtp.rotary_emb.inv_freq"] is Fate.SKIPPED_SILENTLY


@pytest.mark.parametrize("prefix", ["model.", "model.language_model."])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_head_under_another_prefix_is_skipped_silently(version: str, prefix: str) -> None:
    moved = with_head(served_release("Qwen_Qwen3.5-9B"), lambda name: f"{prefix}{name}")
    landings = supported(version, moved).landings.value
    assert landings is not None
    assert {landing.fate for landing in landings} == {Fate.SKIPPED_SILENTLY}


def test_an_output_head_under_the_language_model_is_kept_and_refused() -> None:
    checkpoint = served_release("Qwen_Qwen3.5-9B")
    name = "language_model.lm_head.weight"
    extra = replace(checkpoint.head["mtp.norm.weight"], name=name, shape=(248320, 4096))
    landings = supported("0.33.0", replace(checkpoint, head={**checkpoint.head, name: extra})).landings.value
    assert landings is not None
    assert next(landing for landing in landings if landing.tensor == name).fate is Fate.REFUSED


def test_parameters_are_bare_memory() -> None:
    text = tree("0.33.0").text(MODELOPT).splitlines()[933:1020]
    assert sum("torch.empty(" in words for words in text) >= 6


def test_shards_without_a_wanted_name_are_all_read() -> None:
    assert line("0.33.0", WEIGHT_FILES, 827).strip() == "if not kept:"
    assert line("0.33.0", WEIGHT_FILES, 828).strip() == "return hf_weights_files"


def test_a_missing_tensor_of_a_quantised_head_leaves_memory_as_it_was() -> None:
    short = with_head(served_release(HEADLINE), lambda name: None if name == "mtp.fc.weight" else name)
    support = supported("0.33.0", short)
    assert support.unwritten.value is not None
    assert [parameter.name for parameter in support.unwritten.value] == ["model.fc.weight"]
    assert support.noticing.value is not None
    assert support.noticing.value.name == "NOTHING"
