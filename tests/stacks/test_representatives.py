"""A few experts stand for all, and what they cannot stand for is said."""

from __future__ import annotations

from draftproof.stacks.representatives import representatives
from tests.support.served_checkpoints import served_release, with_config, with_head

MOE = "Qwen_Qwen3.5-122B-A10B"


def test_two_experts_stand_for_all() -> None:
    few = representatives(served_release(MOE))
    assert few.config["text_config"]["num_experts"] == 2
    experts = [tensor.name for tensor in few.tensors if ".experts." in tensor.name]
    assert len(experts) == 6
    assert few.counts["mtp.layers.0.mlp.experts.{e}.up_proj.weight"] == 256
    assert sum(few.counts.values()) == 785
    assert not few.missing


def test_the_router_and_fused_experts_shrink_with_them() -> None:
    few = representatives(served_release("Qwen_Qwen3.6-35B-A3B"))
    shapes = {tensor.name: tensor.shape for tensor in few.tensors}
    assert shapes["mtp.layers.0.mlp.gate.weight"][0] == 2
    assert shapes["mtp.layers.0.mlp.experts.gate_up_proj"][0] == 2
    assert shapes["mtp.layers.0.mlp.shared_expert_gate.weight"][0] == 1


def test_a_dense_head_stays_as_it_is() -> None:
    checkpoint = served_release("Qwen_Qwen3.5-9B")
    few = representatives(checkpoint)
    assert few.config == checkpoint.config
    assert len(few.tensors) == 15


def test_grouped_experts_keep_their_groups() -> None:
    few = representatives(served_release("deepseek-ai_DeepSeek-R1"))
    assert few.config["n_routed_experts"] == 2 * few.config["n_group"]


def test_an_expert_without_a_tensor_is_named() -> None:
    gone = "mtp.layers.0.mlp.experts.77.up_proj.weight"
    short = with_head(served_release(MOE), lambda name: None if name == gone else name)
    assert representatives(short).missing == {"mtp.layers.0.mlp.experts.{e}.up_proj.weight": 77}


def test_the_checkpoint_itself_is_not_changed() -> None:
    checkpoint = with_config(served_release(MOE))
    representatives(checkpoint)
    assert checkpoint.config["text_config"]["num_experts"] == 256
