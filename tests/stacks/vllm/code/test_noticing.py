"""Whether vLLM would notice a head whose parameters stayed unwritten."""

from __future__ import annotations

import pytest

from draftproof.stacks.code_facts import Noticing
from draftproof.stacks.vllm.code.class_location import ClassSite, locate_class
from draftproof.stacks.vllm.code.noticing import LOADER, completeness_check, noticing, tracking
from draftproof.stacks.vllm.code.registry import DRAFT_TABLE, read_registry, registration
from tests.support.edited_tree import edited_tree, replaced
from tests.support.real_stacks import real_stack

CHECKING = {
    "0.19.0": {"DeepSeekMTPModel", "Step3p5MTP"},
    "0.26.0": {
        *("DeepSeekMTPModel", "DeepSeekV4MTPModel", "MiniMaxM3MTP"),
        *("BailingMoeV25MTPModel", "InklingMTPModel", "Step3p5MTP"),
    },
    "0.33.0": {
        *("DeepSeekMTPModel", "DeepseekV32MTPModel", "DeepSeekV4MTPModel", "BailingMoeV25MTPModel"),
        *("BailingMoeV3MTPModel", "MiniMaxM3MTP", "InklingMTPModel", "Glm5NextMTPModel", "Step5MTP"),
        *("Step3p5MTP", "KimiK3MTPModel"),
    },
}


def draft(version: str, architecture: str) -> ClassSite:
    tree = real_stack("vllm", version).tree
    entry = registration(tree, architecture).value
    assert entry is not None
    site = locate_class(tree, entry.module, entry.class_name).value
    assert site is not None
    return site


@pytest.mark.parametrize("version", CHECKING)
def test_which_drafts_check_themselves(version: str) -> None:
    tree = real_stack("vllm", version).tree
    registry = read_registry(tree).value
    assert registry is not None
    drafts = [
        entry.architecture
        for entry in registry.entries.values()
        if entry.table == DRAFT_TABLE and "MTP" in entry.architecture
    ]
    checking = {name for name in drafts if completeness_check(tree, draft(version, name)).value}
    assert checking == CHECKING[version]


def test_a_quantised_head_without_a_check_of_its_own_is_served_without_a_word() -> None:
    for version in CHECKING:
        tree = real_stack("vllm", version).tree
        assert noticing(tree, draft(version, "Qwen3_5MTP"), is_quantised=True).value is Noticing.NOTHING


def test_a_head_with_a_check_of_its_own_is_refused() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    answer = noticing(tree, draft("0.33.0", "DeepSeekMTPModel"), is_quantised=True)
    assert answer.value is Noticing.ERROR
    assert str(answer.places[0]) == "vllm/model_executor/models/deepseek_mtp.py:531"


def test_an_unquantised_head_was_checked_before_linears_were_exempted() -> None:
    old = real_stack("vllm", "0.19.0").tree
    assert noticing(old, draft("0.19.0", "Qwen3_5MTP"), is_quantised=False).value is Noticing.ERROR
    new = real_stack("vllm", "0.33.0").tree
    answer = noticing(new, draft("0.33.0", "Qwen3_5MTP"), is_quantised=False)
    assert answer.value is Noticing.NOTHING
    assert str(answer.places[0]) == f"{LOADER}:566"


def test_a_loader_written_in_another_way_is_not_understood() -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree,
        {LOADER: replaced("weights_to_load - loaded_weights", "still_missing(weights_to_load)")},
    )
    assert not tracking(tree).understood
    assert not noticing(tree, draft("0.33.0", "Qwen3_5MTP"), is_quantised=True).understood
