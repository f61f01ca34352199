"""Plans against public totals: every figure of tests/data/configs/_expected_counts.json, by arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ExpertLayout, ModelSpec
from draftproof.architecture.stored_plan import Storage, cache_scales, expected_tensors
from draftproof.architecture.tensor_plan import (
    ExpertLayouts,
    ModelPart,
    PlannedTensor,
    TensorGroup,
    TensorPlan,
    detect_layouts,
    plan_tensors,
)
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.precision import Precision
from tests.support.checkpoints import (
    BF16,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    CheckpointOptions,
    Family,
    write_checkpoint,
)
from tests.support.public_configs import fact_table, public_config_files

CONFIGS = {
    "0.8B": "Qwen_Qwen3.5-0.8B",
    "2B": "Qwen_Qwen3.5-2B",
    "4B": "Qwen_Qwen3.5-4B",
    "9B": "Qwen_Qwen3.5-9B",
    "27B": "Qwen_Qwen3.5-27B",
    "35B": "Qwen_Qwen3.5-35B-A3B",
    "122B": "Qwen_Qwen3.5-122B-A10B",
    "397B": "Qwen_Qwen3.5-397B-A17B",
    "2.4T": "Qwen_Qwen3.8-2.4T-A95B-FP8",
}
FUSED, PER_EXPERT, NONE = ExpertLayout.FUSED, ExpertLayout.PER_EXPERT, ExpertLayout.NONE
COUNTS = fact_table("_expected_counts")


@cache
def spec_of(size: str) -> ModelSpec:
    return spec_from_config(public_config_files(CONFIGS[size]))


@pytest.mark.parametrize("key", COUNTS["bf16"])
def test_bf16_releases_have_the_published_counts_and_sizes(key: str) -> None:
    size, _, variant = key.partition("/")
    head = {"": NONE, "per_expert_mtp": PER_EXPERT, "fused_mtp": FUSED}[variant]
    plan = plan_tensors(spec_of(size), ExpertLayouts(FUSED, head))
    expected = COUNTS["bf16"][key]
    assert {
        "lm": len(plan.of(ModelPart.TRUNK)),
        "mtp": len(plan.of(ModelPart.MTP)),
        "vision": len(plan.of(ModelPart.VISION)),
        "total": len(plan.tensors),
        "params_lm": plan.parameters(ModelPart.TRUNK),
        "params_mtp": plan.parameters(ModelPart.MTP),
        "params_vision": plan.parameters(ModelPart.VISION),
        "mtp_bytes_bf16": 2 * plan.parameters(ModelPart.MTP),
    } == expected


@pytest.mark.parametrize(("size", "total_size"), [("9B", 19_306_216_416), ("27B", 55_562_855_904)])
def test_bytes_of_two_releases_are_exact(size: str, total_size: int) -> None:
    """The 9B keeps A_log and the gated norms in F32, the 27B everything in BF16."""
    plan = plan_tensors(spec_of(size), ExpertLayouts(NONE, NONE))
    wide = (".A_log", ".linear_attn.norm.weight") if size == "9B" else ()
    total = sum(t.parameters * (4 if wide and t.name.endswith(wide) else 2) for t in plan.tensors)
    assert total == total_size


@pytest.mark.parametrize(
    ("template", "size", "head"),
    [
        ("dense", "27B", NONE),
        ("moe_fused_35B", "35B", FUSED),
        ("moe_per_expert_397B_expert0", "397B", PER_EXPERT),
    ],
)
def test_heads_have_the_published_names_and_shapes(template: str, size: str, head: ExpertLayout) -> None:
    plan = plan_tensors(spec_of(size), ExpertLayouts(FUSED, head))
    shapes = {tensor.name: list(tensor.shape) for tensor in plan.of(ModelPart.MTP)}
    expected = fact_table("_mtp_templates")["templates"][template]
    others = {name for name in shapes if ".experts." in name and ".experts.0." not in name}
    if head is PER_EXPERT:
        assert len(others) == 511 * 3
        shapes = {name: shape for name, shape in shapes.items() if name not in others}
    assert shapes == expected


# How the published quantised releases store what: rules over a planned tensor.

Rule = Callable[[PlannedTensor], Storage | None]
NVFP4 = Storage(Precision.NVFP4_MODELOPT, activation_scale=True)
NVFP4_W4A16 = Storage(Precision.NVFP4_MODELOPT)
COMPRESSED = Storage(Precision.NVFP4_COMPRESSED, activation_scale=True)
FP8_STATIC = Storage(Precision.FP8_TENSOR, activation_scale=True)
FP8_BLOCK = Storage(Precision.FP8_BLOCK)
ROUTED, SHARED, DENSE = TensorGroup.ROUTED_EXPERT, TensorGroup.SHARED_EXPERT, TensorGroup.DENSE_MLP
ATTENTION, GDN, LM_HEAD = TensorGroup.ATTENTION, TensorGroup.GATED_DELTA_NET, TensorGroup.LM_HEAD
NARROW = ("in_proj_a.weight", "in_proj_b.weight", "in_proj_ba.weight")


def rule(storages: Mapping[TensorGroup, Storage], head: bool = False) -> Rule:
    """Groups in a storage each, in the trunk and, if `head`, in the MTP head; narrow GDN inputs never."""

    def storage_of(tensor: PlannedTensor) -> Storage | None:
        if tensor.name.endswith(NARROW) or (tensor.part is ModelPart.MTP and not head):
            return None
        return storages.get(tensor.group)

    return storage_of


def same(storage: Storage, *groups: TensorGroup) -> dict[TensorGroup, Storage]:
    return dict.fromkeys(groups, storage)


MIXED_27B = same(FP8_STATIC, ATTENTION, GDN)
FP8_OFFICIAL = rule(same(FP8_BLOCK, ROUTED, SHARED, DENSE, ATTENTION, GDN), head=True)
PE = ExpertLayouts(PER_EXPERT, PER_EXPERT)
RULES: dict[str, tuple[ExpertLayouts, Rule]] = {
    "Qwen/Qwen3.5-122B-A10B-FP8 @a099dee7": (PE, FP8_OFFICIAL),
    "Qwen/Qwen3.6-35B-A3B-FP8": (PE, FP8_OFFICIAL),
    "Qwen/Qwen3.8-2.4T-A95B-FP8 (text-only)": (PE, rule(same(FP8_BLOCK, ROUTED), head=True)),
    "Qwen/Qwen3.5-397B-A17B-FP8": (PE, FP8_OFFICIAL),
    "Qwen/Qwen3.5-35B-A3B-FP8": (PE, FP8_OFFICIAL),
    "Qwen/Qwen3.5|3.6-27B-FP8 (only mtp.fc of MTP unquantized)": (ExpertLayouts(NONE, NONE), FP8_OFFICIAL),
    "nvidia/Qwen3.5-122B-A10B-NVFP4 @98915d83": (PE, rule(same(NVFP4, ROUTED))),
    "community Qwen3.5-122B-A10B-NVFP4 @56a6bdda (compressed-tensors)": (
        PE,
        rule(same(COMPRESSED, ROUTED, SHARED, ATTENTION)),
    ),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": (
        ExpertLayouts(PER_EXPERT, FUSED),
        rule(same(NVFP4, ROUTED, SHARED, LM_HEAD) | same(FP8_STATIC, ATTENTION, GDN)),
    ),
    "nvidia/Qwen3.6-27B-NVFP4 @0893e160": (
        ExpertLayouts(NONE, NONE),
        rule(same(NVFP4, DENSE, LM_HEAD) | MIXED_27B),
    ),
    "r0b0tlab/Qwen3.8-27B-NVFP4-MTP-sm121 @36f717a2 (W4A16: no NVFP4 input_scale)": (
        ExpertLayouts(NONE, NONE),
        rule(same(NVFP4_W4A16, DENSE, LM_HEAD) | MIXED_27B),
    ),
    "gittensor Qwen3.8-27B-NVFP4-RTX5090 pre-final (all 401 NVFP4)": (
        ExpertLayouts(NONE, NONE),
        rule(same(NVFP4, DENSE, LM_HEAD, ATTENTION, GDN)),
    ),
    "nvidia/Qwen3.5-397B-A17B-NVFP4 (V1) routed-only": (PE, rule(same(NVFP4, ROUTED))),
    "nvidia/Qwen3.5-397B-A17B-NVFP4 (V1) routed+shared": (PE, rule(same(NVFP4, ROUTED, SHARED))),
    "nvidia/Qwen3.5-397B-A17B-NVFP4-V2 routed NVFP4, attn+gdn+shared FP8": (
        PE,
        rule(same(NVFP4, ROUTED) | same(FP8_STATIC, SHARED, ATTENTION, GDN)),
    ),
    "nvidia/Qwen3.5-397B-A17B-NVFP4-V2 routed NVFP4, attn(self)+shared FP8 only": (
        PE,
        rule(same(NVFP4, ROUTED) | same(FP8_STATIC, SHARED, ATTENTION)),
    ),
}
QUANTIZED = {row["repo"]: row for row in COUNTS["quantized"]}


def count(plan: TensorPlan, storage_of: Rule) -> tuple[int, int]:
    """Tensors on disk of everything and of the head."""
    plain = Storage(Precision.BF16)
    parts = [tensor.planned.part for tensor in expected_tensors(plan, lambda t: storage_of(t) or plain)]
    return len(parts), parts.count(ModelPart.MTP)


@pytest.mark.parametrize("repository", RULES)
def test_quantised_releases_have_the_published_counts(repository: str) -> None:
    row = QUANTIZED[repository]
    layouts, storage_of = RULES[repository]
    assert count(plan_tensors(spec_of(row["size"]), layouts), storage_of) == (row["total"], row["mtp"])


def test_every_row_of_the_table_is_tested() -> None:
    elsewhere = {
        "gittensor Qwen3.8-27B-NVFP4-RTX5090 main (MTP removed)",
        "nvidia/Qwen3.5-397B-A17B-NVFP4 (V1) routed-only + k/v_scale",
    }
    assert set(RULES) | elsewhere == set(QUANTIZED)


def test_a_config_that_says_zero_plans_no_head() -> None:
    spec = spec_from_config(public_config_files("gittensor_Qwen3.8-27B-NVFP4-RTX5090"))
    plan = plan_tensors(spec, ExpertLayouts(NONE, NONE))
    assert count(plan, rule(same(NVFP4, DENSE, LM_HEAD, ATTENTION, GDN))) == (2387, 0)


def test_cache_scales_add_thirty_to_the_397b() -> None:
    plan = plan_tensors(spec_of("397B"), PE)
    assert len(list(cache_scales(plan))) == 371_474 - 371_444


def test_one_mixed_release_of_compressed_tensors() -> None:
    """unsloth's 3.8-27B: FP8 for attention, GDN, lm_head and the MLPs of layers 56 to 63, NVFP4 elsewhere."""
    fp8 = Storage(Precision.FP8_CHANNEL)
    late = tuple(f".layers.{index}.mlp." for index in range(56, 64))

    def storage_of(tensor: PlannedTensor) -> Storage | None:
        base = rule(same(COMPRESSED, DENSE) | same(fp8, ATTENTION, GDN, LM_HEAD))(tensor)
        return fp8 if base is COMPRESSED and any(part in tensor.name for part in late) else base

    plan = plan_tensors(spec_of("27B"), ExpertLayouts(NONE, NONE))
    total, head = count(plan, storage_of)
    assert (total + len(list(cache_scales(plan))), head) == (1968, 15)


def test_the_headline_head_is_512_experts_times_3_plus_17() -> None:
    spec = spec_of("397B")
    plan = plan_tensors(spec, PE)
    assert len(plan.of(ModelPart.MTP)) == 1553
    assert sum(tensor.group is ROUTED for tensor in plan.of(ModelPart.MTP)) == 512 * 3


def test_371_444_names_are_listed_within_seconds() -> None:
    started = time.perf_counter()
    plan = plan_tensors(spec_of("397B"), PE)
    plain = Storage(Precision.BF16)
    storage_of = rule(same(NVFP4, ROUTED))
    names = {tensor.name for tensor in expected_tensors(plan, lambda t: storage_of(t) or plain)}
    assert len(names) == 371_444
    assert detect_layouts(names) == PE
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    "options",
    [
        CheckpointOptions(),
        CheckpointOptions(moe=True),
        CheckpointOptions(moe=True, mtp_experts=FUSED),
        CheckpointOptions(family=Family.QWEN3_5_TEXT, tied=True),
        CheckpointOptions(family=Family.QWEN3_NEXT, moe=True, precision=BF16),
        CheckpointOptions(moe=True, precision=NVFP4_ROUTED),
        CheckpointOptions(moe=True, precision=NVFP4_COMPRESSED),
        CheckpointOptions(precision=NVFP4_MIXED),
        CheckpointOptions(vision=False),
    ],
    ids=lambda options: f"{options.family.value}-{options.recipe.name}-{options.trunk_layout.value}",
)
def test_plans_list_exactly_the_tensors_of_a_generated_checkpoint(
    options: CheckpointOptions, tmp_path: Path
) -> None:
    written = write_checkpoint(tmp_path / "checkpoint", options)
    checkpoint = open_checkpoint(str(written.folder))
    plan = plan_tensors(spec_from_config(checkpoint.config), detect_layouts(checkpoint.inventory.tensors))
    planned = {tensor.name: tensor.shape for tensor in plan.tensors}
    if not options.vision:
        planned = {name: shape for name, shape in planned.items() if "visual" not in name}
    assert planned == {name: tuple(tensor.shape) for name, tensor in written.tensors.items()}
