"""Where a registered class is defined: through packages, re-exports and platforms."""

from __future__ import annotations

import ast

import pytest

from draftproof.stacks.vllm.code.class_location import locate_class, on_cuda
from draftproof.stacks.vllm.code.registry import DRAFT_TABLE, read_registry
from tests.support.edited_tree import edited_tree, replaced
from tests.support.real_stacks import real_stack


@pytest.mark.parametrize(
    ("module", "name", "place"),
    [
        (
            "vllm.model_executor.models.qwen3_5_mtp",
            "Qwen3_5MTP",
            "vllm/model_executor/models/qwen3_5_mtp.py:216",
        ),
        ("vllm.models.deepseek_v32", "DeepseekV32MTP", "vllm/models/deepseek_v32/nvidia/mtp.py:274"),
        ("vllm.models.qwen4_exp", "Qwen4ExpMTP", "vllm/models/qwen4_exp/nvidia/mtp.py:400"),
        ("vllm.models.inkling", "InklingMTP", "vllm/models/inkling/nvidia/mtp.py:261"),
        ("vllm.models.glm5next", "Glm5NextMTP", "vllm/models/glm5next/common/mtp.py:206"),
    ],
)
def test_the_copy_for_nvidia_is_found(module: str, name: str, place: str) -> None:
    found = locate_class(real_stack("vllm", "0.33.0").tree, module, name)
    assert found.value is not None
    assert str(found.value.place) == place


def test_an_alias_leads_to_the_class_that_it_stands_for() -> None:
    found = locate_class(
        real_stack("vllm", "0.33.0").tree, "vllm.models.deepseek_v32", "GlmMoeDsaForCausalLM"
    )
    assert found.value is not None
    assert found.value.name == "DeepseekV32ForCausalLM"


@pytest.mark.parametrize("version", ["0.19.0", "0.26.0", "0.33.0"])
def test_every_draft_of_the_table_is_found(version: str) -> None:
    tree = real_stack("vllm", version).tree
    registry = read_registry(tree)
    assert registry.value is not None
    for entry in registry.value.entries.values():
        if entry.table == DRAFT_TABLE:
            assert locate_class(tree, entry.module, entry.class_name).value is not None, entry


def test_a_class_that_is_not_there_is_absent() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    gone = locate_class(tree, "vllm.model_executor.models.qwen3_5_mtp", "Qwen9MTP")
    assert gone.understood
    assert gone.value is None
    assert not locate_class(tree, "vllm.model_executor.models.no_such", "X").is_found


def test_a_file_that_is_no_python_is_not_understood() -> None:
    file = "vllm/model_executor/models/qwen3_5_mtp.py"
    broken = edited_tree(real_stack("vllm", "0.33.0").tree, {file: replaced("def forward(", "def forward((")})
    found = locate_class(broken, "vllm.model_executor.models.qwen3_5_mtp", "Qwen3_5MTP")
    assert not found.understood
    assert found.places[0].file == file


@pytest.mark.parametrize(
    ("test", "answer"),
    [
        ("current_platform.is_cuda()", True),
        ("current_platform.is_rocm()", False),
        ("TYPE_CHECKING or not current_platform.is_rocm()", True),
        ("current_platform.is_xpu() or current_platform.is_tpu()", False),
        ("current_platform.is_cuda() and HAS_TRITON", None),
        ("not HAS_TRITON", None),
    ],
)
def test_questions_about_the_platform_are_answered_as_on_cuda(test: str, answer: bool | None) -> None:
    assert on_cuda(ast.parse(test, mode="eval").body) is answer
