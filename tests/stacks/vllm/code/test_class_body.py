"""A draft class does something, or is a stub."""

from __future__ import annotations

import ast

import pytest

from draftproof.stacks.reading import Reading
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.class_body import implementation, is_stub
from draftproof.stacks.vllm.code.class_location import locate_class
from draftproof.stacks.vllm.code.registry import DRAFT_TABLE, read_registry
from tests.support.edited_tree import edited_tree, method_replaced, replaced
from tests.support.real_stacks import real_stack

QWEN = "vllm/model_executor/models/qwen3_5_mtp.py"


def judged(tree: SourceTree, module: str, name: str) -> Reading[str]:
    site = locate_class(tree, module, name)
    assert site.value is not None
    return implementation(tree, site.value)


@pytest.mark.parametrize("version", ["0.19.0", "0.26.0", "0.33.0"])
def test_no_registered_mtp_draft_is_a_stub_on_cuda(version: str) -> None:
    tree = real_stack("vllm", version).tree
    registry = read_registry(tree)
    assert registry.value is not None
    for entry in registry.value.entries.values():
        if entry.table == DRAFT_TABLE and "MTP" in entry.architecture:
            assert judged(tree, entry.module, entry.class_name).value, entry


def test_inherited_methods_count() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    judgement = judged(tree, "vllm.model_executor.models.qwen3_5_mtp", "Qwen3_5MoeMTP")
    assert judgement.value is not None
    assert "load_weights in Qwen3_5MTP" in judgement.value
    assert str(judgement.places[0]) == f"{QWEN}:281"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("vllm.models.deepseek_v4.cpu.mtp", "DeepSeekV4MTP"),
        ("vllm.models.deepseek_v4.cpu.dspark", "DSparkDeepseekV4ForCausalLM"),
    ],
)
def test_the_stubs_that_ship_are_recognised(module: str, name: str) -> None:
    judgement = judged(real_stack("vllm", "0.33.0").tree, module, name)
    assert judgement.understood
    assert judgement.value is None
    assert "stub" in judgement.sentence


@pytest.mark.parametrize("method", ["forward", "compute_logits", "load_weights"])
def test_a_method_emptied_makes_a_stub(method: str) -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree, {QWEN: method_replaced(method, "pass", "Qwen3_5MTP")}
    )
    judgement = judged(tree, "vllm.model_executor.models.qwen3_5_mtp", "Qwen3_5MTP")
    assert judgement.understood
    assert judgement.value is None
    assert f"Qwen3_5MTP.{method} is a stub" in judgement.sentence
    assert judgement.places[0].file == QWEN


def test_a_forward_without_the_targets_hidden_states_is_no_draft() -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree,
        {QWEN: method_replaced("forward", "return self.model(input_ids, positions)", "Qwen3_5MTP")},
    )
    judgement = judged(tree, "vllm.model_executor.models.qwen3_5_mtp", "Qwen3_5MTP")
    assert judgement.value is None
    assert "hidden states" in judgement.sentence


def test_a_base_outside_the_tree_leaves_it_open() -> None:
    tree = edited_tree(
        real_stack("vllm", "0.33.0").tree,
        {
            QWEN: replaced(
                "class Qwen3_5MTP(LocalArgmaxMixin, nn.Module, SupportsMultiModal, SupportsPP):",
                "class Qwen3_5MTP(elsewhere.Base):\n    pass\n\n\nclass Former:",
            )
        },
    )
    judgement = judged(tree, "vllm.model_executor.models.qwen3_5_mtp", "Qwen3_5MTP")
    assert not judgement.understood
    assert "elsewhere.Base" in judgement.sentence


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("pass", True),
        ("...", True),
        ("return None", True),
        ("raise NotImplementedError('later')", True),
        ('"""Says something."""', True),
        ("return x + 1", False),
        ("raise ValueError(x)", False),
        ("for y in x: pass", False),
    ],
)
def test_what_counts_as_a_stub(body: str, stub: bool) -> None:
    function = ast.parse(f"def f(x):\n    {body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert is_stub(function) is stub
