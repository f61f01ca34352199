"""vLLM's table of models, read from the source."""

from __future__ import annotations

import pytest

from draftproof.stacks.vllm.code.registry import (
    DRAFT_TABLE,
    REGISTRY,
    full_module,
    read_registry,
    registration,
)
from tests.support.edited_tree import edited_tree, replaced
from tests.support.real_stacks import real_stack


@pytest.mark.parametrize(("version", "entries"), [("0.19.0", 323), ("0.26.0", 362), ("0.33.0", 415)])
def test_every_literal_entry_is_read(version: str, entries: int) -> None:
    registry = read_registry(real_stack("vllm", version).tree)
    assert registry.value is not None
    assert len(registry.value.entries) == entries


def test_an_entry_tells_module_class_table_and_line() -> None:
    found = registration(real_stack("vllm", "0.33.0").tree, "Qwen3_5MoeMTP")
    assert found.value is not None
    assert found.value.module == "vllm.model_executor.models.qwen3_5_mtp"
    assert found.value.class_name == "Qwen3_5MoeMTP"
    assert found.value.table == DRAFT_TABLE
    assert str(found.places[0]) == "vllm/model_executor/models/registry.py:740"


def test_a_module_in_full_stays_as_it_is() -> None:
    assert full_module("vllm.models.deepseek_v4") == "vllm.models.deepseek_v4"
    assert full_module("llama") == "vllm.model_executor.models.llama"


def test_an_architecture_that_is_no_longer_served_is_named() -> None:
    gone = registration(real_stack("vllm", "0.33.0").tree, "ErnieModel")
    assert gone.understood
    assert gone.value is None
    assert gone.sentence == "ErnieModel is no longer served; vLLM 0.23.0 was the last that did"


def test_an_unknown_architecture_is_absent() -> None:
    unknown = registration(real_stack("vllm", "0.33.0").tree, "NoSuchModel")
    assert unknown.understood
    assert unknown.value is None


def test_a_removed_entry_is_absent() -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree,
        {REGISTRY: replaced('    "Qwen3_5MTP": ("qwen3_5_mtp", "Qwen3_5MTP"),\n', "")},
    )
    assert registration(tree, "Qwen3_5MTP").value is None
    assert registration(tree, "Qwen3_5MoeMTP").value is not None


def test_tables_under_another_name_are_not_understood() -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree, {REGISTRY: replaced("_VLLM_MODELS", "_TABLE_OF_ALL")}
    )
    registry = read_registry(tree)
    assert not registry.understood
    assert "_VLLM_MODELS" in registry.sentence


def test_a_registry_that_is_no_python_is_not_understood() -> None:
    tree = edited_tree(real_stack("vllm", "0.33.0").tree, {REGISTRY: lambda text: text + "\n)("})
    assert not registration(tree, "Qwen3_5MTP").understood
