"""What is registered: EntryClass of the modules directly in srt/models, and nothing else."""

from __future__ import annotations

import pytest

from draftproof.stacks.sglang.code.registry import MODELS, REGISTRY, registration
from tests.support.edited_tree import edited_tree, method_replaced, replaced
from tests.support.real_stacks import real_stack

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")
HEAD = "Qwen3_5ForCausalLMMTP"
HEAD_FILE = f"{MODELS}/qwen3_5_mtp.py"


@pytest.mark.parametrize(("version", "line"), [("0.5.9", 347), ("0.5.12", 394), ("0.5.23", 506)])
def test_the_head_is_registered_at_its_line(version: str, line: int) -> None:
    reading = registration(real_stack("sglang", version).tree, HEAD)
    assert reading.value is not None
    assert (reading.value.place.file, reading.value.place.line) == (HEAD_FILE, line)
    assert reading.value.cls.file == HEAD_FILE


def test_a_class_from_a_sub_package_is_found_where_it_is_written() -> None:
    reading = registration(real_stack("sglang", "0.5.23").tree, "Dots3NoteForCausalLMNextN")
    assert reading.value is not None
    assert reading.value.place.file == f"{MODELS}/dots3_nextn.py"
    assert reading.value.cls.file == f"{MODELS}/dots3_common/nextn.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_is_only_mentioned_is_not_registered(version: str) -> None:
    """`Qwen3NextModel` is a class beside registered ones, and is imported by the head's module."""
    reading = registration(real_stack("sglang", version).tree, "Qwen3NextModel")
    assert reading.understood
    assert reading.value is None


def test_an_architecture_that_nobody_has_is_absent() -> None:
    reading = registration(real_stack("sglang", "0.5.23").tree, "NobodysForCausalLM")
    assert reading.understood
    assert reading.value is None
    assert "no EntryClass" in reading.sentence


def test_without_its_entry_the_class_is_absent() -> None:
    tree = edited_tree(
        real_stack("sglang", "0.5.23").tree,
        {HEAD_FILE: replaced(f"EntryClass = [{HEAD}]", "EntryClass = []")},
    )
    reading = registration(tree, HEAD)
    assert reading.understood
    assert reading.value is None


def test_a_module_that_does_not_parse_is_absent_with_its_line() -> None:
    tree = edited_tree(
        real_stack("sglang", "0.5.23").tree,
        {HEAD_FILE: replaced("logger = logging.getLogger(__name__)", "logger = = None")},
    )
    reading = registration(tree, HEAD)
    assert reading.understood
    assert reading.value is None
    assert "only warns" in reading.sentence
    assert reading.places[0].file == HEAD_FILE
    assert reading.places[0].line > 1


def test_two_entries_stop_the_registry() -> None:
    tree = edited_tree(
        real_stack("sglang", "0.5.23").tree,
        {
            f"{MODELS}/qwen3_next_mtp.py": replaced(
                "EntryClass = [Qwen3NextForCausalLMMTP]",
                f"from sglang.srt.models.qwen3_5_mtp import {HEAD}\n"
                f"EntryClass = [Qwen3NextForCausalLMMTP, {HEAD}]",
            )
        },
    )
    reading = registration(tree, HEAD)
    assert reading.understood
    assert reading.value is None
    assert "registered 2 times" in reading.sentence
    assert len(reading.places) == 2


def test_an_entry_in_another_form_is_not_understood() -> None:
    tree = edited_tree(
        real_stack("sglang", "0.5.23").tree,
        {HEAD_FILE: replaced(f"EntryClass = [{HEAD}]", f"EntryClass = make_entries({HEAD})")},
    )
    reading = registration(tree, HEAD)
    assert not reading.understood
    assert "another way" in reading.sentence


def test_a_registry_of_another_form_is_not_understood() -> None:
    tree = real_stack("sglang", "0.5.23").tree
    changed = edited_tree(
        tree, {REGISTRY: method_replaced("import_model_classes", "return scan(package_name)")}
    )
    for source in (changed, edited_tree(tree, {REGISTRY: None})):
        reading = registration(source, HEAD)
        assert not reading.understood
        assert reading.sentence.startswith("looked for import_model_classes")


@pytest.mark.parametrize("name", ["", "no name", "../x", "a.b"])
def test_what_is_no_name_of_a_class_is_absent(name: str) -> None:
    reading = registration(real_stack("sglang", "0.5.23").tree, name)
    assert reading.understood
    assert reading.value is None
