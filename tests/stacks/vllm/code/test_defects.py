"""Known defects: the versions that are said to have one do, and a repaired copy comes out clean."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from draftproof.stacks.defect import Defect
from draftproof.stacks.situation import Situation
from draftproof.stacks.vllm.code.defect_queries import (
    CONVERTOR,
    GLM_HEAD,
    QWEN_HEAD,
    ROUTED_EXPERTS,
    SPECULATIVE,
    WEIGHT_FILES,
    path_words,
)
from draftproof.stacks.vllm.code.defects import DEFECTS, code_defects
from draftproof.stacks.vllm.code.noticing import LOADER
from tests.support.edited_tree import Edit, both, edited_tree, replaced, substituted
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release, with_config, with_head

VERSIONS = ("0.19.0", "0.26.0", "0.33.0")
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"

REPAIRS: Mapping[str, Mapping[str, Edit]] = {
    "vllm-projection-packed": {
        QWEN_HEAD: substituted(
            r"(        self\.fc = ColumnParallelLinear\(.*?)quant_config=quant_config",
            '        fc = None if quant_config.get_name() == "modelopt_fp4" else quant_config\n'
            r"\1quant_config=fc",
        )
    },
    "vllm-projection-exception-narrow": {
        QWEN_HEAD: substituted(r"( +)fc_quant = \(.*?\n +\)\n", r"\1fc_quant = precision_of(weights)\n"),
    },
    "vllm-unwritten-unnoticed": {
        LOADER: replaced("model_config.quantization is None and loaded_weights", "loaded_weights")
    },
    "vllm-linears-exempt": {LOADER: replaced("loaded_weights.add(full_name)", "pass")},
    "vllm-other-prefixes-skipped": {
        QWEN_HEAD: replaced("                    continue\n", "                    raise ValueError(name)\n")
    },
    "vllm-unindexed-dropped": {
        WEIGHT_FILES: substituted(
            r"( +)(hf_weights_files = \[f for f in hf_weights_files if f in weight_files_in_index\])",
            r'\1logger.warning("left out: %s", set(hf_weights_files) - weight_files_in_index)'
            + "\n"
            + r"\1\2",
        )
    },
    "vllm-unmatched-experts-dropped": {
        ROUTED_EXPERTS: substituted(
            r"(                        yield param_name\n)",
            r"\1            if not matched:\n                raise ValueError(expert_name)\n",
        )
    },
    "vllm-path-changes-method": {SPECULATIVE: replaced(".model.lower()", ".model_kind")},
    "vllm-part-of-a-name": {SPECULATIVE: replaced('("pangu_ultra_moe")', '("pangu_ultra_moe",)')},
    "vllm-zero-layers-divide": {
        SPECULATIVE: replaced("elif n_predict is not None:", "elif n_predict is not None and n_predict > 0:")
    },
    "vllm-text-only-unmapped": {
        SPECULATIVE: replaced(
            '("qwen3_5", "qwen3_5_moe")',
            '("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")',
        )
    },
    "vllm-layers-counted-twice": {
        QWEN_HEAD: replaced('"mtp_num_hidden_layers", 1)', '"mtp_num_hidden_layers", 0)')
    },
    "vllm-unknown-names-passed-over": {GLM_HEAD: replaced("continue", "raise ValueError(name)")},
}

OPEN_WHEN_REPAIRED = {"vllm-projection-exception-narrow"}
"""A rule that looks at the tensors has a form that the query cannot know: it says so."""


def by_identifier(defect: Defect) -> str:
    return defect.identifier


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_exactly_the_defects_that_it_is_said_to_have(defect: Defect, version: str) -> None:
    present = defect.query(real_stack("vllm", version).tree)
    assert present.understood, present.sentence
    assert present.value is (version in defect.observed_in), present.sentence
    assert present.places
    assert all(place.line > 0 for place in present.places)


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
def test_a_repaired_copy_comes_out_clean(defect: Defect) -> None:
    tree = real_stack("vllm", defect.observed_in[-1]).tree
    repaired = defect.query(edited_tree(tree, REPAIRS[defect.identifier]))
    if defect.identifier in OPEN_WHEN_REPAIRED:
        assert not repaired.understood, repaired.sentence
    else:
        assert repaired.understood, repaired.sentence
        assert repaired.value is False, repaired.sentence


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
def test_a_source_without_the_place_is_not_understood(defect: Defect) -> None:
    tree = real_stack("vllm", "0.33.0").tree
    files = {place.file for place in defect.query(tree).places} | {CONVERTOR}
    gone = defect.query(edited_tree(tree, dict.fromkeys(files)))
    assert not gone.understood
    assert gone.value is None
    assert gone.sentence.startswith("looked for")


def test_every_defect_is_described_and_has_a_repair() -> None:
    identifiers = [defect.identifier for defect in DEFECTS]
    assert len(set(identifiers)) == len(identifiers)
    assert set(REPAIRS) == set(identifiers)
    assert all(defect.title and defect.looks_for and defect.workaround for defect in DEFECTS)


def test_a_head_with_two_repairs_is_still_read() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    edits = {
        SPECULATIVE: both(replaced('"dspark" in', '"dspark-" in'), replaced('"eagle3" in', '"eagle4" in'))
    }
    assert path_words(edited_tree(tree, edits)).value == ("eagle-", "eagle4", "dflash", "dspark-")


def applying(version: str, **changes: object) -> set[str]:
    tree = real_stack("vllm", version).tree
    checkpoint = with_config(served_release(HEADLINE), **changes)
    findings = code_defects(tree, checkpoint, Situation())
    return {finding.defect.identifier for finding in findings if finding.applies and finding.present.value}


def test_the_headline_checkpoint_meets_its_defects() -> None:
    assert applying("0.19.0") == {
        "vllm-projection-packed",
        "vllm-unwritten-unnoticed",
        "vllm-unmatched-experts-dropped",
    }
    assert applying("0.33.0") == {"vllm-unwritten-unnoticed", "vllm-unmatched-experts-dropped"}


def test_a_head_under_another_prefix_meets_the_loader_that_passes_it_over() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    moved = with_head(served_release("Qwen_Qwen3.5-27B"), lambda name: f"model.{name}")
    findings = {item.defect.identifier: item for item in code_defects(tree, moved, Situation())}
    assert findings["vllm-other-prefixes-skipped"].applies
    usual = code_defects(tree, served_release("Qwen_Qwen3.5-27B"), Situation())
    assert not next(item for item in usual if item.defect.identifier == "vllm-other-prefixes-skipped").applies


def test_a_model_type_that_is_a_part_of_another_name_is_concerned() -> None:
    assert "vllm-part-of-a-name" in applying("0.33.0", model_type="moe")
    assert "vllm-part-of-a-name" not in applying("0.33.0", model_type="pangu_ultra_moe")


def test_a_declared_depth_of_zero_is_concerned() -> None:
    assert "vllm-zero-layers-divide" in applying("0.33.0", mtp_num_hidden_layers=0)
