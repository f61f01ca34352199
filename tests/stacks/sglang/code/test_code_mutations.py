"""One thing changed in a real source: the claim that rests on it breaks, with the line, and none before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from draftproof.evidence import EvidenceItem, Verdict
from draftproof.links.code import check_code
from draftproof.stacks.known import rules_for
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.code.draft_config import MODEL_CONFIG
from draftproof.stacks.sglang.code.noticing import LOADER
from draftproof.stacks.sglang.code.registry import MODELS
from tests.support.edited_tree import Edit, edited_tree, method_replaced, replaced
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release, with_config

HEAD = "Qwen3_5ForCausalLMMTP"
HEAD_FILE = f"{MODELS}/qwen3_5_mtp.py"
CHECKPOINT = "nvidia_Qwen3.5-122B-A10B-NVFP4"
OLD = "0.5.9"
"""Its files are smaller than those of later versions, and it is tested like them elsewhere."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Facts about changed sources must not take the place of facts about the real ones."""
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))


def claims(
    edits: dict[str, Edit | None], version: str = OLD, checkpoint: ServedCheckpoint | None = None
) -> dict[str, EvidenceItem]:
    stack = real_stack("sglang", version)
    changed = replace(stack, tree=edited_tree(stack.tree, edits))
    served = replace(checkpoint or served_release(CHECKPOINT), from_files=True)
    report = check_code(served, changed, rules_for(stack.kind))
    return {item.check: item for item in report.items}


def broken(items: dict[str, EvidenceItem]) -> list[str]:
    return [check for check, item in items.items() if item.verdict is Verdict.DISPROVED]


def place(item: EvidenceItem) -> tuple[str, int | None]:
    return item.where[0].file, item.where[0].line


def test_unchanged_it_holds() -> None:
    assert not broken(claims({}))


@pytest.mark.parametrize("method", ["forward", "load_weights"])
def test_a_stub_breaks_the_implementation(method: str) -> None:
    items = claims({HEAD_FILE: method_replaced(method, "pass", HEAD)})
    assert broken(items)[0] == "draft-implemented"
    file, line = place(items["draft-implemented"])
    assert file == HEAD_FILE
    assert line is not None
    text = real_stack("sglang", OLD).tree.text(HEAD_FILE).splitlines()
    assert f"def {method}" in text[line - 1]


def test_a_stub_of_the_loader_leaves_every_parameter_unwritten() -> None:
    items = claims({HEAD_FILE: method_replaced("load_weights", "pass", HEAD)})
    assert {"tensors-land", "parameters-written"} <= set(broken(items))
    assert "785 tensors" in items["tensors-land"].observed
    assert "fc.weight" in items["parameters-written"].observed


def test_without_its_registration_the_class_is_not_reached() -> None:
    items = claims({HEAD_FILE: replaced(f"EntryClass = [{HEAD}]", "EntryClass = []")})
    assert broken(items) == ["draft-class", "draft-class-registered"]
    assert items["tensors-land"].verdict is Verdict.UNKNOWN


def test_without_the_mapping_the_target_is_its_own_draft() -> None:
    items = claims(
        {
            MODEL_CONFIG: replaced(
                '"Qwen3_5MoeForConditionalGeneration",\n        ]:', '"NobodysArchitecture",\n        ]:'
            )
        }
    )
    assert broken(items) == ["draft-mapped"]
    assert "loaded as its own draft" in items["draft-mapped"].observed
    assert place(items["draft-mapped"])[0] == MODEL_CONFIG


def test_a_mapping_to_a_class_that_is_not_there() -> None:
    items = claims({MODEL_CONFIG: replaced(f'"{HEAD}"', '"Qwen3_5ForCausalLMNextN"')})
    assert broken(items) == ["draft-class", "draft-class-registered"]
    assert "Qwen3_5ForCausalLMNextN" in items["draft-class-registered"].observed


def test_another_prefix_in_the_loader_loses_the_whole_head() -> None:
    items = claims({HEAD_FILE: replaced('if "mtp" not in name:', 'if "draft" not in name:')})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert "without a word" in items["tensors-land"].observed
    assert place(items["tensors-land"])[0] == HEAD_FILE


def test_a_name_that_is_no_longer_rewritten_loses_one_tensor() -> None:
    items = claims({HEAD_FILE: replaced('name = name.replace("model.fc", "fc")', "pass")})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert "1 tensor (mtp.fc.weight)" in items["tensors-land"].observed
    assert "the log says" in items["tensors-land"].observed
    assert "no tensor lands in fc.weight" in items["parameters-written"].observed


def test_a_changed_expert_mapping_loses_the_experts() -> None:
    items = claims({HEAD_FILE: replaced('ckpt_down_proj_name="down_proj"', 'ckpt_down_proj_name="w2"')})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert "256 tensors (mtp.layers.0.mlp.experts.{e}.down_proj.weight)" in items["tensors-land"].observed
    assert "w2_weight" in items["parameters-written"].observed


def test_a_missing_part_of_a_fused_projection_leaves_a_part_unwritten() -> None:
    items = claims({HEAD_FILE: replaced('            ("qkv_proj", "k_proj", "k"),\n', "")})
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert "k_proj" in items["tensors-land"].observed
    assert "qkv_proj.weight (part" in items["parameters-written"].observed


def without_mtp_on_the_list() -> ServedCheckpoint:
    """The checkpoint with a list of excluded modules that says nothing about the head."""
    checkpoint = served_release(CHECKPOINT)
    section = dict(checkpoint.config["quantization_config"])
    section["ignore"] = [entry for entry in section["ignore"] if "mtp" not in entry]
    return with_config(checkpoint, quantization_config=section)


def test_without_its_rule_a_plain_head_is_built_packed() -> None:
    checkpoint = without_mtp_on_the_list()
    assert not broken(claims({}, checkpoint=checkpoint))
    rule = replaced('quant_config.get_name() == "modelopt_fp4"', "False")
    items = claims({HEAD_FILE: rule}, checkpoint=checkpoint)
    assert broken(items)[:2] == ["tensors-land", "parameters-written"]
    assert "the start ends with" in items["tensors-land"].observed


def test_a_module_that_does_not_parse_is_named_with_its_line() -> None:
    items = claims({HEAD_FILE: replaced("logger = logging.getLogger(__name__)", "logger = = None")})
    assert broken(items) == ["draft-class", "draft-class-registered"]
    file, line = place(items["draft-class-registered"])
    assert file == HEAD_FILE
    text = real_stack("sglang", OLD).tree.text(HEAD_FILE).splitlines()
    assert line is not None
    assert "logger" in text[line - 1]


def test_a_hit_in_another_models_file_is_no_evidence() -> None:
    """Without its class the head is not there, however many other files say mtp, is_nextn or its name."""
    items = claims(
        {HEAD_FILE: None, f"{MODELS}/qwen3_next_mtp.py": lambda text: f"# {HEAD} is_nextn mtp\n{text}"}
    )
    assert broken(items) == ["draft-class", "draft-class-registered"]
    assert items["draft-implemented"].verdict is Verdict.UNKNOWN


def test_a_loader_that_compares_what_it_loaded_is_not_warned_of() -> None:
    checked = replaced(
        "        model.load_weights(weights)\n",
        "        loaded = model.load_weights(weights)\n"
        "        if loaded != set(dict(model.named_parameters())):\n"
        "            raise ValueError(loaded)\n",
    )
    assert claims({})["parameters-written"].warnings
    assert not claims({LOADER: checked})["parameters-written"].warnings


def test_the_newest_version_breaks_the_same_way() -> None:
    items = claims({HEAD_FILE: replaced('name.startswith("mtp.")', 'name.startswith("draft.")')}, "0.5.23")
    assert broken(items) == ["tensors-land", "parameters-written"]
    assert place(items["tensors-land"])[0] == HEAD_FILE


def test_source_of_another_form_is_open_and_says_what_was_looked_for() -> None:
    items = claims({MODEL_CONFIG: replaced("_config_draft_model", "_configure_the_draft")})
    assert items["draft-mapped"].verdict is Verdict.UNKNOWN
    assert items["draft-mapped"].reason.startswith("looked for ModelConfig._config_draft_model")
    assert not broken(items)


def test_a_tree_without_its_models_proves_nothing() -> None:
    stack = real_stack("sglang", OLD)
    edits: dict[str, Edit | None] = dict.fromkeys(stack.tree.files(MODELS))
    items = claims(edits)
    for check in (
        "target-known",
        "draft-class",
        "draft-class-registered",
        "draft-implemented",
        "tensors-land",
    ):
        assert items[check].verdict is not Verdict.PROVEN
