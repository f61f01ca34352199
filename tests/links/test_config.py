"""Link 1 as a specification: a config file, and the verdict that it must get.

Each case starts from a sound checkpoint and changes one thing.
"""

import json

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Verdict
from draftproof.links.config import check_config
from draftproof.links.weights import check_weights
from tests.support.checkpoints import NVFP4_ROUTED, CheckpointOptions, Family, write_checkpoint
from tests.support.faults import copy_of, protect, remove_config, set_config, strip_mtp

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN
COUNT = "mtp_num_hidden_layers"
NESTED = f"text_config.{COUNT}"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Small checkpoints without a vision tower; tests damage copies."""
    kinds = {
        "dense": CheckpointOptions(vision=False, tokenizer=True),
        "flat": CheckpointOptions(family=Family.QWEN3_5_TEXT),
        "next": CheckpointOptions(family=Family.QWEN3_NEXT, moe=True),
        "nvfp4": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, vision=False),
    }
    root = tmp_path_factory.mktemp("config")
    return {name: protect(write_checkpoint(root / name, options).folder) for name, options in kinds.items()}


@pytest.fixture
def damaged(originals, tmp_path):
    return lambda kind: copy_of(originals[kind], tmp_path / kind)


def check(folder):
    return check_config(open_checkpoint(str(folder)))


def claim(report, name):
    return next(item for item in report.items if item.check == name)


@pytest.mark.parametrize(
    ("kind", "path"),
    [("dense", NESTED), ("flat", COUNT), ("nvfp4", NESTED)],
)
def test_a_sound_config_is_proven_and_the_field_is_named(originals, kind, path):
    report = check(originals[kind])
    assert report.verdict is PROVEN, report.summary
    assert not report.warnings
    declared = claim(report, "head-declared")
    assert declared.observed.startswith(f"{path} = 1")
    assert [place.field for place in declared.where] == [path]


# Where the count may stand, as exporters have put it: (top level, text_config) -> verdict, warnings.
@pytest.mark.parametrize(
    ("top", "nested", "verdict", "warns"),
    [
        (1, None, PROVEN, False),
        (None, 1, PROVEN, False),
        (1, 1, PROVEN, False),
        (1, 2, DISPROVED, False),
        (None, None, PROVEN, True),
        (None, 0, DISPROVED, True),
    ],
)
def test_where_the_head_is_declared(damaged, top, nested, verdict, warns):
    folder = damaged("dense")
    remove_config(folder, NESTED)
    if top is not None:
        set_config(folder, COUNT, top)
    if nested is not None:
        set_config(folder, NESTED, nested)
    report = check(folder)
    assert (report.verdict, bool(report.warnings)) == (verdict, warns)


def test_two_counts_are_both_named(damaged):
    folder = damaged("dense")
    set_config(folder, COUNT, 2)
    agrees = claim(check(folder), "declaration-agrees")
    assert agrees.verdict is DISPROVED
    assert NESTED in agrees.observed
    assert f"{COUNT} is 2" in agrees.observed


def test_silent_config_and_weights_without_head_disproves(damaged):
    folder = damaged("dense")
    remove_config(folder, NESTED)
    strip_mtp(folder)
    report = check(folder)
    assert report.verdict is DISPROVED
    assert report.summary == "silent, and no tensor looks like one of a head"


def test_silent_config_and_weights_with_head_says_what_to_add(damaged):
    folder = damaged("dense")
    remove_config(folder, NESTED)
    assert f"Set {COUNT} to the number of its layers" in check(folder).warnings[0].text


def test_qwen3_next_is_silent_by_nature(originals):
    report = check(originals["next"])
    assert report.verdict is PROVEN
    assert not report.warnings
    assert "the weights decide" in claim(report, "head-declared").observed


def test_zero_layers_and_no_tensors_is_an_honest_no(damaged):
    folder = damaged("dense")
    set_config(folder, NESTED, 0)
    strip_mtp(folder)
    report = check(folder)
    assert (report.verdict, report.warnings) == (DISPROVED, ())
    assert "says that it has no head" in report.summary


def test_zero_layers_beside_tensors_of_a_head_warns(damaged):
    folder = damaged("dense")
    set_config(folder, NESTED, 0)
    assert "15 tensors of a head" in check(folder).warnings[0].text


# Fields that make no sense: (field, value) -> the check that says so.
@pytest.mark.parametrize(
    ("path", "value", "check_name"),
    [
        (NESTED, -1, "head-declared"),
        (NESTED, "1", "head-declared"),
        (NESTED, True, "head-declared"),
        (NESTED, 10**9, "head-declared"),
        ("text_config.hidden_size", 0, "sizes-sensible"),
        ("text_config.hidden_size", 10**12, "sizes-sensible"),
        ("text_config.num_key_value_heads", 4, "sizes-sensible"),
        ("text_config.layer_types", ["linear_attention"], "sizes-sensible"),
        ("text_config.vocab_size", None, "sizes-sensible"),
        ("text_config.rope_parameters.rope_type", "su", "sizes-sensible"),
        ("model_type", 3, "family-known"),
    ],
)
def test_a_field_that_makes_no_sense_is_named(damaged, path, value, check_name):
    folder = damaged("dense")
    set_config(folder, path, value)
    item = claim(check(folder), check_name)
    assert item.verdict is DISPROVED
    assert path in item.observed


def test_a_plan_that_would_fill_the_memory_is_refused(originals, damaged):
    folder = damaged("nvfp4")
    remove_config(folder, "text_config.layer_types")
    set_config(folder, "text_config.num_hidden_layers", 1024)
    set_config(folder, "text_config.num_experts", 65_536)
    report = check(folder)
    assert claim(report, "sizes-sensible").verdict is DISPROVED
    assert "num_experts" in report.summary
    assert "67,108,864 experts" in check_weights(open_checkpoint(str(folder))).summary


# Places that must not contradict each other: (field, value) -> the check that compares them.
@pytest.mark.parametrize(
    ("path", "value", "check_name"),
    [
        ("hidden_size", 128, "levels-agree"),
        ("num_hidden_layers", 8, "levels-agree"),
        ("text_config.rope_theta", 10_000, "rotary-agrees"),
        ("text_config.partial_rotary_factor", 0.25, "rotary-agrees"),
        ("rope_theta", 10_000, "rotary-agrees"),
        ("text_config.rope_scaling", {"type": "yarn", "factor": 4.0}, "rotary-agrees"),
    ],
)
def test_two_places_that_contradict_each_other_are_both_named(damaged, path, value, check_name):
    folder = damaged("dense")
    set_config(folder, path, value)
    item = claim(check(folder), check_name)
    assert item.verdict is DISPROVED
    assert path.split(".")[-1] in item.observed
    assert len(item.where) >= 2


def test_what_the_weights_settle_is_a_warning(damaged):
    folder = damaged("dense")
    set_config(folder, "tie_word_embeddings", True)
    set_config(folder, "text_config.tie_word_embeddings", False)
    report = check(folder)
    assert report.verdict is PROVEN
    assert "text_config.tie_word_embeddings = False" in report.warnings[0].text


def test_rope_scaling_warns_that_it_applies_to_the_head(damaged):
    folder = damaged("dense")
    set_config(folder, "text_config.rope_parameters.rope_type", "yarn")
    set_config(folder, "text_config.rope_parameters.factor", 4.0)
    report = check(folder)
    assert report.verdict is PROVEN
    assert "rope scaling yarn (factor 4) applies to the head" in report.warnings[0].text


# config.json against hf_quant_config.json: (field of hf_quant_config.json, value) -> verdict, warnings.
@pytest.mark.parametrize(
    ("path", "value", "verdict", "warns"),
    [
        ("quantization.quant_algo", "FP8", DISPROVED, False),
        ("quantization.group_size", 32, DISPROVED, False),
        ("quantization.kv_cache_quant_algo", "INT8", DISPROVED, False),
        ("quantization.kv_cache_quant_algo", None, PROVEN, False),
        ("quantization.exclude_modules", ["lm_head"], PROVEN, True),
    ],
)
def test_two_quantization_configs(damaged, path, value, verdict, warns):
    folder = damaged("nvfp4")
    set_config(folder, path, value, "hf_quant_config.json")
    report = check(folder)
    assert (claim(report, "quantization-agrees").verdict, bool(report.warnings)) == (verdict, warns)


def test_another_exporters_config_beside_modelopts_is_a_contradiction(damaged):
    folder = damaged("nvfp4")
    set_config(folder, "quantization_config.quant_method", "compressed-tensors")
    assert claim(check(folder), "quantization-agrees").verdict is DISPROVED


def test_only_modelopts_own_file_is_enough(damaged):
    folder = damaged("nvfp4")
    remove_config(folder, "quantization_config")
    assert check(folder).verdict is PROVEN


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"a": NaN}'),
        ("hf_quant_config.json", "no JSON"),
        ("generation_config.json", '{"eos_token_id": 1, "eos_token_id": 2}'),
    ],
)
def test_a_file_that_is_no_json_object_is_named(damaged, file, text):
    folder = damaged("nvfp4")
    (folder / file).write_text(text)
    item = claim(check(folder), "config-readable")
    assert item.verdict is DISPROVED
    assert file in item.observed
    assert item.command == f"python -m json.tool {folder / file}"


def test_a_missing_config(damaged):
    folder = damaged("dense")
    (folder / "config.json").unlink()
    report = check(folder)
    assert report.verdict is DISPROVED
    assert report.summary == "there is no config.json"
    item = claim(report, "config-readable")
    assert [place.file for place in item.where] == ["config.json"]
    assert item.command == f"ls -l {folder}"


def test_an_unknown_architecture_is_unknown_and_says_what_was_looked_for(damaged):
    folder = damaged("flat")
    set_config(folder, "model_type", "llama")
    report = check(folder)
    item = claim(report, "family-known")
    assert report.verdict is UNKNOWN
    assert "'llama'" in item.reason
    assert f"fields {COUNT}" in item.observed
    assert "mtp.fc.weight" in item.observed


def test_end_tokens(damaged, originals):
    folder = damaged("dense")
    (folder / "generation_config.json").unlink()
    notes = claim(check(folder), "sizes-sensible").notes
    assert "there is no generation_config.json: generation stops at" in notes[0].text
    set_config(folder, "text_config.eos_token_id", 10_000)
    assert "outside the vocabulary of 320" in check(folder).warnings[0].text


def test_a_tokenizer_class_of_transformers_5_is_noted(damaged):
    folder = damaged("dense")
    set_config(folder, "tokenizer_class", "TokenizersBackend", "tokenizer_config.json")
    assert "transformers" in claim(check(folder), "config-readable").notes[0].text


# Every public config: what its link 1 must say.
@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("Qwen_Qwen3.5-397B-A17B", PROVEN),
        ("nvidia_Qwen3.5-397B-A17B-NVFP4", PROVEN),
        ("Qwen_Qwen3.8-2.4T-A95B-FP8", PROVEN),
        ("Qwen_Qwen3-Next-80B-A3B-Instruct", PROVEN),
        ("unsloth_Qwen3.6-27B-NVFP4", PROVEN),
        ("deepseek-ai_DeepSeek-R1", PROVEN),
        ("MiniMaxAI_MiniMax-M2", PROVEN),
        ("MiniMaxAI_MiniMax-M3", PROVEN),
        ("zai-org_GLM-4.5-Air", PROVEN),
        ("gittensor_Qwen3.8-27B-NVFP4-RTX5090", DISPROVED),
    ],
)
def test_public_configs(public_config, tmp_path, name, verdict):
    (tmp_path / "config.json").write_text(json.dumps(public_config(name)))
    report = check(tmp_path)
    assert report.verdict is verdict, report.summary
