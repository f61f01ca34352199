"""One thing changed in a real source: the claim that rests on it breaks, with the line, and none before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.evidence import EvidenceItem, Verdict
from draftproof.links.code import check_code
from draftproof.stacks.known import rules_for
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.vllm.code.defect_queries import QWEN_HEAD, SPECULATIVE
from draftproof.stacks.vllm.code.noticing import LOADER
from draftproof.stacks.vllm.code.registry import REGISTRY
from tests.support.edited_tree import Edit, edited_tree, method_replaced, replaced
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release, with_config, with_head

DENSE = "Qwen_Qwen3.5-27B"
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"
QWEN_MODEL = "vllm/model_executor/models/qwen3_next.py"
MODELOPT = "vllm/model_executor/layers/quantization/modelopt.py"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Facts about changed sources must not take the place of facts about the real ones."""
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))


def claims(
    edits: dict[str, Edit | None], checkpoint: ServedCheckpoint | str = DENSE, version: str = "0.33.0"
) -> dict[str, EvidenceItem]:
    stack = real_stack("vllm", version)
    changed = replace(stack, tree=edited_tree(stack.tree, edits))
    served = served_release(checkpoint) if isinstance(checkpoint, str) else checkpoint
    report = check_code(replace(served, from_files=True), changed, rules_for(stack.kind))
    return {item.check: item for item in report.items}


def broken(items: dict[str, EvidenceItem]) -> list[str]:
    return [check for check, item in items.items() if item.verdict is Verdict.DISPROVED]


def place(item: EvidenceItem) -> str:
    return f"{item.where[0].file}:{item.where[0].line}"


def test_unchanged_it_holds() -> None:
    assert not broken(claims({}))


@pytest.mark.parametrize(("method", "line"), [("forward", 281), ("load_weights", 307)])
def test_a_stub_breaks_the_implementation(method: str, line: int) -> None:
    items = claims({QWEN_HEAD: method_replaced(method, "pass", "Qwen3_5MTP")})
    assert broken(items)[0] == "draft-implemented"
    assert place(items["draft-implemented"]) == f"{QWEN_HEAD}:{line}"


def test_a_stub_of_the_loader_loses_every_tensor() -> None:
    items = claims({QWEN_HEAD: method_replaced("load_weights", "pass", "Qwen3_5MTP")})
    assert {"tensors-land", "parameters-written"} <= set(broken(items))
    assert "15 tensors" in items["tensors-land"].observed


def test_without_its_registration_the_class_is_not_reached() -> None:
    items = claims({REGISTRY: replaced('    "Qwen3_5MTP": ("qwen3_5_mtp", "Qwen3_5MTP"),\n', "")})
    assert broken(items) == ["draft-class", "draft-class-registered"]
    assert items["draft-class-registered"].where[0].file == REGISTRY
    assert items["tensors-land"].verdict is Verdict.UNKNOWN


def test_a_registration_of_a_class_that_is_not_there() -> None:
    items = claims({REGISTRY: replaced('("qwen3_5_mtp", "Qwen3_5MTP")', '("qwen3_5_mtp", "Qwen3_5NextN")')})
    assert broken(items) == ["draft-class"]
    assert "Qwen3_5NextN" in items["draft-class"].observed


def test_without_the_mapping_there_is_no_draft() -> None:
    items = claims({SPECULATIVE: replaced('            "qwen3_5",\n', '            "nobody",\n')})
    assert broken(items) == ["draft-mapped"]
    assert "Unsupported speculative method" in items["draft-mapped"].observed
    assert items["draft-mapped"].where[0].file == SPECULATIVE


def test_a_model_type_that_no_longer_counts_as_mtp() -> None:
    items = claims({SPECULATIVE: replaced('    "qwen3_5_mtp",\n', "")})
    assert broken(items) == ["draft-mapped"]


def test_a_head_under_another_prefix_is_passed_over_without_a_word() -> None:
    moved = with_head(served_release(DENSE), lambda name: f"model.{name}")
    items = claims({}, moved)
    assert broken(items)[:2] == ["tensors-land", "parameters-written"]
    assert "nothing is said" in items["tensors-land"].observed
    assert "defect-vllm-other-prefixes-skipped" in broken(items)


def test_another_name_in_the_loader_loses_the_whole_head() -> None:
    items = claims({QWEN_HEAD: replaced('name.startswith("mtp.")', 'name.startswith("draft.")')})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert items["tensors-land"].where[0].file == QWEN_HEAD


def test_a_part_of_a_fused_projection_that_is_no_longer_mapped_stops_the_start() -> None:
    items = claims({QWEN_MODEL: replaced('            ".k_proj": (".qkv_proj", "k"),\n', "")})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert "k_proj" in items["tensors-land"].observed
    assert "ValueError: There is no module or parameter named" in items["tensors-land"].observed
    assert "qkv_proj.weight (in part)" in items["parameters-written"].observed


def test_without_its_exception_the_projection_is_built_packed() -> None:
    items = claims({QWEN_HEAD: replaced('get_name() == "modelopt_fp4"', 'get_name() == "none"')}, HEADLINE)
    assert broken(items)[:2] == ["tensors-land", "parameters-written"]
    assert items["tensors-land"].observed.startswith("1 tensor (mtp.fc.weight): the start ends with")


def test_a_list_that_is_no_longer_followed_packs_the_head() -> None:
    items = claims({MODELOPT: method_replaced("is_layer_excluded", "return False")}, HEADLINE)
    assert broken(items)[0] == "tensors-land"
    assert "experts" in items["tensors-land"].observed


def test_a_head_without_a_tensor_is_incomplete_and_nobody_notices() -> None:
    whole = served_release(HEADLINE)
    short = with_head(whole, lambda name: None if name == "mtp.pre_fc_norm_hidden.weight" else name)
    items = claims({}, short)
    assert broken(items) == ["parameters-written"]
    assert "model.pre_fc_norm_hidden.weight" in items["parameters-written"].observed
    assert items["parameters-written"].warnings


def test_a_loader_with_a_check_is_believed() -> None:
    items = claims(
        {LOADER: replaced("model_config.quantization is None and loaded_weights", "loaded_weights")}
    )
    assert not broken(items)


def test_a_quantisation_that_contradicts_itself_stops_the_start() -> None:
    checkpoint = served_release("RedHatAI_Qwen3.5-9B-quantized.w4a16")
    section = dict(checkpoint.config["quantization_config"])
    section["ignore"] = ["lm_head", "mtp.fc", "mtp.layers.0.self_attn.q_proj"]
    items = claims({}, with_config(checkpoint, quantization_config=section))
    assert broken(items)[0] == "tensors-land"
    assert "different quantization schemes" in items["tensors-land"].observed


def test_a_module_that_does_not_parse_leaves_it_open_with_its_line() -> None:
    items = claims({QWEN_HEAD: replaced("logger = init_logger(__name__)", "logger = = None")})
    assert not broken(items)
    assert items["draft-class"].verdict is Verdict.UNKNOWN
    assert items["draft-class"].where[0].file == QWEN_HEAD


def test_a_syntax_error_elsewhere_changes_nothing() -> None:
    items = claims({"vllm/model_executor/models/llama.py": lambda text: text + "\n)("})
    assert not broken(items)


def test_an_override_of_another_name_is_not_understood() -> None:
    items = claims({SPECULATIVE: replaced("hf_config_override", "draft_config_of")})
    assert not broken(items)
    assert items["draft-mapped"].verdict is Verdict.UNKNOWN
    assert "hf_config_override" in items["draft-mapped"].reason
