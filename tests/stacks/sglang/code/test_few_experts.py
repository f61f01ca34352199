"""Three experts stand for all: nothing is left out that differs."""

from __future__ import annotations

from draftproof.stacks.sglang.code.few_experts import few_experts
from tests.support.served_checkpoints import served_release, with_head


def test_experts_are_reduced_with_the_config_where_no_rule_asks_for_their_number() -> None:
    few = few_experts(served_release("nvidia_Qwen3.5-397B-A17B-NVFP4"))
    assert few.config["text_config"]["num_experts"] == 3
    assert len(few.tensors) == 17 + 3 * 3
    router = next(tensor for tensor in few.tensors if tensor.name.endswith("mlp.gate.weight"))
    assert router.shape == (3, 4096)
    assert few.counts["mtp.layers.0.mlp.experts.{e}.up_proj.weight"] == 512
    assert sum(few.counts.values()) == 1553
    assert (few.experts, few.loaded_experts) == (3, 3)
    assert not few.missing


def test_the_config_is_left_as_it_is_where_rules_ask_for_the_number() -> None:
    checkpoint = served_release("deepseek-ai_DeepSeek-R1")
    few = few_experts(checkpoint)
    assert few.config == checkpoint.config
    assert {"0", "1", "255"} == {
        tensor.name.split(".experts.")[1].split(".")[0]
        for tensor in few.tensors
        if ".experts." in tensor.name
    }
    assert (few.experts, few.loaded_experts) == (256, 3)


def test_fused_experts_get_as_many_as_are_built() -> None:
    few = few_experts(served_release("Qwen_Qwen3.6-35B-A3B"))
    shapes = {tensor.name: tensor.shape for tensor in few.tensors}
    assert shapes["mtp.layers.0.mlp.experts.gate_up_proj"][0] == 3
    assert shapes["mtp.layers.0.mlp.gate.weight"][0] == 3
    assert few.experts == 0


def test_a_dense_head_is_left_as_it_is() -> None:
    checkpoint = served_release("Qwen_Qwen3.5-9B")
    few = few_experts(checkpoint)
    assert few.config == checkpoint.config
    assert len(few.tensors) == 15
    assert set(few.pattern_of.values()) == set(checkpoint.head)


def test_an_expert_without_a_tensor_is_noticed_though_it_is_not_loaded() -> None:
    gone = "mtp.layers.0.mlp.experts.200.down_proj.weight"
    checkpoint = with_head(
        served_release("Qwen_Qwen3.5-122B-A10B"), lambda name: None if name == gone else name
    )
    assert few_experts(checkpoint).missing == {"mtp.layers.0.mlp.experts.{e}.down_proj.weight": 200}
