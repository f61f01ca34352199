"""Weights by what they do, from headers and from configs."""

import pytest

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import Precision
from draftproof.hardware.weights import Sharding, classify, weigh_config, weigh_precisions, weigh_tensors
from tests.hardware.models import release_as_declared
from tests.support.checkpoint_options import CheckpointOptions
from tests.support.checkpoint_precision import FP8_BLOCK, NVFP4_COMPRESSED, NVFP4_ROUTED
from tests.support.public_configs import config_files, public_config_files

TRUNK, HEAD = ModelPart.TRUNK, ModelPart.MTP


@pytest.mark.parametrize(
    ("module", "part", "group", "sharding"),
    [
        ("model.language_model.layers.3.self_attn.q_proj", TRUNK, TensorGroup.ATTENTION, Sharding.SPLIT),
        ("model.layers.3.self_attn.k_proj", TRUNK, TensorGroup.ATTENTION, Sharding.KEY_VALUE),
        ("model.layers.3.self_attn.q_norm", TRUNK, TensorGroup.NORM, Sharding.REPLICATED),
        ("model.layers.0.linear_attn.in_proj_qkv", TRUNK, TensorGroup.GATED_DELTA_NET, Sharding.SPLIT),
        ("model.layers.0.linear_attn", TRUNK, TensorGroup.GATED_DELTA_NET, Sharding.SPLIT),
        ("model.layers.0.linear_attn.norm", TRUNK, TensorGroup.NORM, Sharding.REPLICATED),
        ("model.layers.0.mlp.gate", TRUNK, TensorGroup.ROUTER, Sharding.REPLICATED),
        ("model.layers.0.mlp.shared_expert_gate", TRUNK, TensorGroup.ROUTER, Sharding.REPLICATED),
        ("model.layers.0.mlp.gate_proj", TRUNK, TensorGroup.DENSE_MLP, Sharding.SPLIT),
        ("model.layers.0.mlp.shared_expert.up_proj", TRUNK, TensorGroup.SHARED_EXPERT, Sharding.SPLIT),
        ("model.layers.0.mlp.experts.17.down_proj", TRUNK, TensorGroup.ROUTED_EXPERT, Sharding.SPLIT),
        ("mtp.layers.0.mlp.experts.gate_up_proj", HEAD, TensorGroup.ROUTED_EXPERT, Sharding.SPLIT),
        ("mtp.fc", HEAD, TensorGroup.MTP, Sharding.REPLICATED),
        ("mtp.pre_fc_norm_hidden", HEAD, TensorGroup.NORM, Sharding.REPLICATED),
        ("lm_head", TRUNK, TensorGroup.LM_HEAD, Sharding.SPLIT),
        ("model.language_model.embed_tokens", TRUNK, TensorGroup.EMBEDDING, Sharding.SPLIT),
        ("model.visual.blocks.0.norm1", ModelPart.VISION, TensorGroup.VISION, Sharding.SPLIT),
    ],
)
def test_what_a_module_does_by_its_name(module, part, group, sharding):
    assert classify(module) == (part, group, sharding)


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "experts"])
def test_files_and_config_of_a_plain_checkpoint_weigh_the_same(dense_checkpoint, moe_checkpoint, moe):
    opened = open_checkpoint(str((moe_checkpoint if moe else dense_checkpoint).folder))
    from_files = weigh_tensors(opened.inventory.tensors.values())
    planned = weigh_precisions(spec_from_config(opened.config), {})
    assert from_files.from_files
    assert not planned.from_files
    assert sum(row.parameters for row in from_files.groups) == sum(row.parameters for row in planned.groups)
    assert from_files.nbytes == opened.inventory.total_bytes
    # A_log and the gated norms are float32 in some releases.
    assert from_files.nbytes == pytest.approx(planned.nbytes, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "found"),
    [
        (NVFP4_ROUTED, Precision.NVFP4_MODELOPT),
        (NVFP4_COMPRESSED, Precision.NVFP4_COMPRESSED),
        (FP8_BLOCK, Precision.FP8_BLOCK),
    ],
)
def test_precision_is_read_from_the_tensors(checkpoint, precision, found):
    options = CheckpointOptions(moe=True, precision=precision)
    opened = open_checkpoint(str(checkpoint(options).folder))
    table = weigh_tensors(opened.inventory.tensors.values())
    assert table.nbytes == opened.inventory.total_bytes
    assert table.precisions(TRUNK, TensorGroup.ROUTED_EXPERT)[0] is found
    experts = table.select(TRUNK, TensorGroup.ROUTED_EXPERT)
    bits = 8 * sum(row.nbytes for row in experts) / sum(row.parameters for row in experts)
    assert bits == pytest.approx(8 if found is Precision.FP8_BLOCK else 4.5, rel=0.15)


def nvfp4_expert(number: int, *leaves: str) -> list[TensorEntry]:
    """Parts of an expert's matrix of 32 columns and 4 rows."""
    forms = {
        "weight": ("U8", (4, 16), 64),
        "weight_scale": ("F8_E4M3", (4, 2), 8),
        "weight_scale_2": ("F32", (), 4),
        "plain": ("BF16", (4, 32), 256),
    }
    module = f"model.layers.0.mlp.experts.{number}.up_proj"
    return [
        TensorEntry(f"{module}.{leaf.replace('plain', 'weight')}", *forms[leaf][:2], "f", 0, forms[leaf][2])
        for leaf in leaves
    ]


WHOLE = ("weight", "weight_scale", "weight_scale_2")


def test_every_expert_counts():
    (row,) = weigh_tensors([entry for number in range(5) for entry in nvfp4_expert(number, *WHOLE)]).groups
    assert (row.precision, row.parameters, row.nbytes) == (Precision.NVFP4_MODELOPT, 5 * 4 * 32, 5 * 76)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["forwards", "backwards"])
def test_experts_that_are_stored_otherwise_are_weighed_one_by_one(order):
    """One lacks its scales, one is plain: neither is taken for its fellow."""
    parts = (WHOLE, ("weight",), ("plain",))
    table = weigh_tensors([entry for number in order for entry in nvfp4_expert(number, *parts[number])])
    assert {(row.precision, row.nbytes) for row in table.groups} == {
        (Precision.NVFP4_MODELOPT, 76),
        (Precision.UNKNOWN, 64),
        (Precision.BF16, 256),
    }


def test_experts_with_as_many_parts_and_other_ones_are_told_apart():
    """As many scales as weights, and one of the scales belongs to an expert without a weight."""
    table = weigh_tensors(
        [*nvfp4_expert(0, *WHOLE), *nvfp4_expert(1, "weight"), *nvfp4_expert(2, *WHOLE[1:])]
    )
    assert table.precisions(TRUNK, TensorGroup.ROUTED_EXPERT).count(Precision.NVFP4_MODELOPT) == 1
    assert next(row for row in table.groups if row.precision is Precision.NVFP4_MODELOPT).nbytes == 76


def test_the_founding_checkpoint_weighs_what_its_repository_does():
    """nvidia's first 397B NVFP4: 251 GB, of which the head's BF16 experts are 12.9 GB."""
    table = release_as_declared("nvidia_Qwen3.5-397B-A17B-NVFP4").weights
    assert table.nbytes == pytest.approx(251e9, rel=0.002)
    assert sum(row.nbytes for row in table.select(HEAD, TensorGroup.ROUTED_EXPERT)) == pytest.approx(
        12.88e9, rel=0.001
    )
    assert table.precisions(TRUNK, TensorGroup.ROUTED_EXPERT) == (Precision.NVFP4_MODELOPT,)
    assert table.precisions(HEAD, TensorGroup.ROUTED_EXPERT) == (Precision.BF16,)


def test_the_bf16_release_weighs_its_parameters_twice():
    table = release_as_declared("Qwen_Qwen3.5-9B").weights
    assert sum(row.parameters for row in table.groups) == 9_653_104_368
    assert "no other precision" in table.source


def test_what_tensor_parallelism_repeats():
    table = release_as_declared("nvidia_Qwen3.5-397B-A17B-NVFP4").weights
    key_value = next(row for row in table.groups if row.sharding is Sharding.KEY_VALUE)
    assert key_value.per_rank(8, key_value_heads=2) == key_value.nbytes / 2
    router = table.select(TRUNK, TensorGroup.ROUTER)[0]
    assert router.per_rank(8, 2) == router.nbytes
    experts = table.select(TRUNK, TensorGroup.ROUTED_EXPERT)[0]
    assert experts.per_rank(8, 2) == experts.nbytes / 8


def test_an_unusable_quantisation_section_weighs_as_bf16():
    files = public_config_files("Qwen_Qwen3.5-9B")
    broken = config_files({**(files.config.content or {}), "quantization_config": ["no object"]})
    assert weigh_config(spec_from_config(files), broken).nbytes == pytest.approx(19.3e9, rel=0.01)


def test_tensors_of_a_family_that_nobody_planned_are_weighed_too():
    names = ("model.layers.61.eh_proj.weight", "model.layers.0.self_attn.kv_a_proj.weight", "odd")
    entries = [TensorEntry(name, "BF16", (4, 8), "model.safetensors", 0, 64) for name in names]
    table = weigh_tensors(entries)
    assert table.nbytes == 3 * 64
    assert weigh_tensors([]).groups == ()
