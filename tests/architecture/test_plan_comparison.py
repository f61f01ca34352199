"""A plan against what is on disk, whole and broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftproof.architecture.plan_comparison import PlanComparison, compare
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ExpertLayout
from draftproof.architecture.stored_plan import Storage, expected_tensors
from draftproof.architecture.tensor_plan import (
    ExpertLayouts,
    ModelPart,
    TensorGroup,
    detect_layouts,
    plan_tensors,
)
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import Precision
from tests.support import faults
from tests.support.checkpoints import (
    ALL_PRECISIONS,
    FP8_BLOCK,
    MTP_NVFP4,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    CheckpointOptions,
    Family,
    write_checkpoint,
)
from tests.support.public_configs import public_config_files
from tests.support.raw_safetensors import RawTensor

FC = "mtp.fc.weight"


def comparison_of(folder: Path) -> PlanComparison:
    checkpoint = open_checkpoint(str(folder))
    tensors = checkpoint.inventory.tensors
    return compare(plan_tensors(spec_from_config(checkpoint.config), detect_layouts(tensors)), tensors)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=2)
    return write_checkpoint(tmp_path / "checkpoint", options).folder


def options() -> Iterator[CheckpointOptions]:
    for precision in ALL_PRECISIONS:
        yield CheckpointOptions(moe=True, precision=precision)
        yield CheckpointOptions(precision=precision)
    yield CheckpointOptions(family=Family.QWEN3_NEXT, moe=True, precision=FP8_BLOCK)
    yield CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4, kv_scales=True)
    yield CheckpointOptions(family=Family.QWEN3_5_TEXT, tied=True, precision=FP8_BLOCK)


@pytest.mark.parametrize(
    "made", list(options()), ids=lambda made: f"{made.family.value}-{made.moe}-{made.recipe.name}"
)
def test_whole_checkpoints_of_every_precision_match(made: CheckpointOptions, tmp_path: Path) -> None:
    found = comparison_of(write_checkpoint(tmp_path / "checkpoint", made).folder)
    assert (found.missing, found.misfits, found.unexpected) == ((), (), ())
    assert not [problem for part in ModelPart for problem in found.problems(part)]
    assert len(found.cache_scales) == (2 if made.kv_scales else 0)


def test_precision_is_reported_by_group(tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=True, precision=NVFP4_MIXED))
    found = comparison_of(made.folder)
    trunk = found.precisions(ModelPart.TRUNK)
    assert trunk[TensorGroup.ROUTED_EXPERT] == {Precision.NVFP4_MODELOPT: 4 * 8 * 3}
    assert trunk[TensorGroup.ATTENTION] == {Precision.FP8_TENSOR: 4}
    assert trunk[TensorGroup.GATED_DELTA_NET] == {Precision.FP8_TENSOR: 9, Precision.BF16: 6}
    assert set(found.precisions(ModelPart.MTP)[TensorGroup.ROUTED_EXPERT]) == {Precision.BF16}


def test_a_stripped_head_is_missing_in_full(folder: Path) -> None:
    faults.strip_mtp(folder)
    found = comparison_of(folder)
    assert {tensor.part for tensor in found.missing} == {ModelPart.MTP}
    assert len(found.missing) == len(found.plan.of(ModelPart.MTP)) == 17 + 3 * 8


def test_one_missing_tensor_is_named(folder: Path) -> None:
    faults.drop_tensors(folder, "mtp.pre_fc_norm_hidden.weight")
    assert [tensor.name for tensor in comparison_of(folder).missing] == ["mtp.pre_fc_norm_hidden.weight"]


def test_a_wrong_shape_names_both_shapes(folder: Path) -> None:
    faults.reshape_tensor(folder, FC, (64, 64))
    (misfit,) = comparison_of(folder).misfits
    assert misfit.message == f"{FC} has shape [64, 64], the config asks for [64, 128]"


def test_a_packed_weight_of_the_wrong_width_names_its_stored_shape(folder: Path) -> None:
    name = "model.language_model.layers.0.mlp.experts.0.up_proj.weight"
    faults.reshape_tensor(folder, name, (48, 16))
    (misfit,) = comparison_of(folder).misfits
    assert "shape [48, 32] (stored as [48, 16])" in misfit.message


def test_a_norm_that_is_no_floating_point_is_a_misfit(folder: Path) -> None:
    faults.put_tensors(folder, {"mtp.norm.weight": RawTensor("I8", (64,), bytes(64))})
    (misfit,) = comparison_of(folder).misfits
    assert "mtp.norm.weight has dtype I8" in misfit.message


def test_a_quantised_weight_without_its_scale_is_a_problem(tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(precision=FP8_BLOCK))
    faults.drop_scale(made.folder, "mtp.layers.0.mlp.up_proj.weight")
    (problem,) = comparison_of(made.folder).problems(ModelPart.MTP)
    assert problem.startswith("mtp.layers.0.mlp.up_proj.weight is F8_E4M3 and has neither weight_scale_inv")


def test_scales_without_a_weight_are_missing_weights(folder: Path) -> None:
    module = "model.language_model.layers.0.mlp.experts.0.up_proj"
    faults.drop_tensors(folder, f"{module}.weight")
    found = comparison_of(folder)
    assert [tensor.module for tensor in found.missing] == [module]
    assert found.unexpected == ()


def test_tensors_under_a_wrong_prefix_are_missing_and_unexpected(folder: Path) -> None:
    faults.rename_tensors(folder, lambda name: f"model.{name}" if name == FC else name)
    found = comparison_of(folder)
    assert [tensor.name for tensor in found.missing] == [FC]
    assert [entry.name for entry in found.unexpected] == [f"model.{FC}"]


def test_a_tied_lm_head_that_is_there_is_unexpected(tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions())
    faults.flip_tied_flag(made.folder)
    assert [entry.name for entry in comparison_of(made.folder).unexpected] == ["lm_head.weight"]


def test_the_headline_checkpoint_matches_within_seconds() -> None:
    """371,444 tensors from the config alone, put on an imaginary disk."""
    spec = spec_from_config(public_config_files("nvidia_Qwen3.5-397B-A17B-NVFP4"))
    plan = plan_tensors(spec, ExpertLayouts(ExpertLayout.PER_EXPERT, ExpertLayout.PER_EXPERT))
    packed, plain = Storage(Precision.NVFP4_MODELOPT, activation_scale=True), Storage(Precision.BF16)
    tensors = {
        tensor.name: TensorEntry(tensor.name, tensor.dtypes[0], tensor.shape, "model.safetensors", 0, 0)
        for tensor in expected_tensors(
            plan,
            lambda planned: (
                packed
                if planned.group is TensorGroup.ROUTED_EXPERT and planned.part is ModelPart.TRUNK
                else plain
            ),
        )
    }
    assert len(tensors) == 371_444
    found = compare(plan, tensors)
    assert (found.missing, found.misfits, found.unexpected) == ((), (), ())
    assert found.precisions(ModelPart.TRUNK)[TensorGroup.ROUTED_EXPERT] == {
        Precision.NVFP4_MODELOPT: 60 * 512 * 3
    }
    assert len(found.modules) > 90_000
