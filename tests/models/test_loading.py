"""Loading is accounting: what is skipped is named; what is missing, too much or wrong is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from draftproof.errors import AccountingError, UnsupportedRequest
from tests.models.quantized import QUANTIZED, logits_of
from tests.support.checkpoints import (
    FP32,
    NVFP4_ROUTED,
    CheckpointOptions,
    WrittenCheckpoint,
)
from tests.support.engines import load
from tests.support.faults import (
    copy_of,
    drop_scale,
    drop_tensors,
    flip_tied_flag,
    put_tensors,
    rename_tensors,
    reshape_tensor,
    set_config,
    set_element,
)
from tests.support.raw_safetensors import RawTensor

Checkpoints = Callable[[CheckpointOptions], WrittenCheckpoint]


def test_skipped_tensors_are_named_with_their_reason(checkpoint: Checkpoints) -> None:
    written = checkpoint(QUANTIZED["nvfp4 mixed"])
    vision = sum("visual." in name for name in written.stored)
    activations = sum(name.endswith(".input_scale") for name in written.stored)
    caches = sum(name.endswith((".k_scale", ".v_scale")) for name in written.stored)
    assert vision
    assert activations
    assert caches
    with_head = load(written.folder).report
    assert dict(with_head.skipped) == {
        "vision tower (text only)": vision,
        "activation scale (activations are not quantised)": activations,
        "key/value cache scale (the cache is not quantised)": caches,
    }
    assert with_head.taken + vision + activations + caches == len(written.stored)
    without = load(written.folder, with_head=False)
    assert without.head is None
    assert dict(without.report.skipped)["MTP head (drafting without it)"] == len(written.mtp_names)


def test_a_tied_lm_head_is_the_embedding_even_when_one_is_stored(
    checkpoint: Checkpoints, tmp_path: Path
) -> None:
    folder = copy_of(checkpoint(CheckpointOptions(precision=FP32)).folder, tmp_path / "tied")
    flip_tied_flag(folder)
    model = load(folder)
    assert dict(model.report.skipped)["lm_head (the config ties it to the embedding)"] == 1
    assert model.target.lm_head.embedding.data_ptr() == model.target.embedding.data_ptr()  # type: ignore[attr-defined]


# Damage: every one is refused, and the message names the tensor.

MOE = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=2)
LAYER = "model.language_model.layers.1."
EXPERT = f"{LAYER}mlp.experts.3."


@pytest.fixture
def damaged(checkpoint: Checkpoints, tmp_path: Path) -> Path:
    """A copy to break."""
    return copy_of(checkpoint(MOE).folder, tmp_path / "damaged")


@pytest.mark.parametrize(
    "name",
    [
        "model.language_model.embed_tokens.weight",
        "model.language_model.norm.weight",
        "lm_head.weight",
        f"{LAYER}linear_attn.A_log",
        f"{LAYER}linear_attn.in_proj_b.weight",
        "model.language_model.layers.3.self_attn.q_norm.weight",
        f"{LAYER}mlp.gate.weight",
        f"{LAYER}mlp.shared_expert_gate.weight",
        f"{EXPERT}down_proj.weight",
        f"{EXPERT}down_proj.weight_scale",
        f"{EXPERT}down_proj.weight_scale_2",
        "mtp.pre_fc_norm_hidden.weight",
        "mtp.fc.weight",
        "mtp.layers.0.mlp.experts.7.up_proj.weight",
    ],
)
def test_a_missing_tensor_is_named(damaged: Path, name: str) -> None:
    drop_tensors(damaged, name)
    with pytest.raises(AccountingError, match=f"tensor {name} is missing"):
        load(damaged)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{LAYER}mlp.shared_expert.up_proj.weight", f"{LAYER}mlp.shared_expert.up_proj_old.weight"),
        ("mtp.norm.weight", "mtp.final_norm.weight"),
    ],
)
def test_a_tensor_with_another_name_is_missing_under_its_own(damaged: Path, old: str, new: str) -> None:
    rename_tensors(damaged, lambda name: new if name == old else name)
    with pytest.raises(AccountingError, match=f"tensor {old} is missing"):
        load(damaged)


@pytest.mark.parametrize(
    "extra",
    [
        f"{LAYER}mlp.experts.8.up_proj.weight",
        "model.language_model.layers.4.input_layernorm.weight",
        "mtp.layers.1.input_layernorm.weight",
        "mtp.embed_tokens.weight",
        f"{LAYER}linear_attn.in_proj_b.weight_scale",
        "adapter.weight",
    ],
)
def test_a_tensor_that_nothing_asks_for_is_named(damaged: Path, extra: str) -> None:
    """One of the vision tower's takes another name: all else is complete."""
    spare = "model.visual.merger.norm.bias"
    rename_tensors(damaged, lambda name: extra if name == spare else name)
    with pytest.raises(
        AccountingError, match=f"1 tensors of the checkpoint have no place in the model: {extra}"
    ):
        load(damaged)


def test_many_left_over_tensors_are_counted(damaged: Path) -> None:
    rename_tensors(damaged, lambda name: name.replace("model.visual.", "model.audio."))
    with pytest.raises(AccountingError, match=r"21 tensors .* model\.audio\..* and 16 more"):
        load(damaged)


def test_a_head_that_the_config_does_not_declare_is_named_as_skipped(damaged: Path) -> None:
    set_config(damaged, "text_config.mtp_num_hidden_layers", 0)
    model = load(damaged)
    assert model.head is None
    assert dict(model.report.skipped)["MTP head (drafting without it)"] > 0


def test_more_head_layers_than_there_are(damaged: Path) -> None:
    set_config(damaged, "text_config.mtp_num_hidden_layers", 2)
    with pytest.raises(AccountingError, match=r"tensor mtp\.layers\.1\.\S+ is missing"):
        load(damaged)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.language_model.embed_tokens.weight", (64, 320)),
        (f"{LAYER}linear_attn.conv1d.weight", (1, 256, 4)),
        (f"{LAYER}mlp.gate.weight", (64, 8)),
        (f"{EXPERT}down_proj.weight", (24, 64)),
        (f"{EXPERT}down_proj.weight_scale", (3, 64)),
        ("mtp.fc.weight", (128, 64)),
        ("mtp.layers.0.self_attn.q_norm.weight", (4, 4)),
    ],
)
def test_a_wrong_shape_is_named_with_both_shapes(damaged: Path, name: str, shape: tuple[int, ...]) -> None:
    reshape_tensor(damaged, name, shape)
    found = str(list(shape)).replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(AccountingError, match=rf"tensor {name} has shape {found}, the config asks for \["):
        load(damaged)


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        ("weight_scale_2", 0.0),
        ("weight_scale_2", -1.0),
        ("weight_scale_2", float("inf")),
        ("weight_scale_2", float("nan")),
        ("weight_scale", float("nan")),
        ("weight_scale", -1.0),
    ],
)
def test_a_scale_that_cannot_be_is_named(damaged: Path, tensor: str, value: float) -> None:
    name = f"{EXPERT}up_proj.{tensor}"
    set_element(damaged, name, value)
    with pytest.raises(AccountingError, match=f"tensor {name} holds a zero, negative or non-finite scale"):
        load(damaged)


@pytest.mark.parametrize(
    ("layout", "scale"),
    [
        ("fp8 block", "weight_scale_inv"),
        ("fp8 tensor", "weight_scale"),
        ("fp8 channel", "weight_scale"),
        ("nvfp4 compressed, dense", "weight_global_scale"),
    ],
)
def test_scales_of_every_precision_are_checked_and_missed(
    checkpoint: Checkpoints, tmp_path: Path, layout: str, scale: str
) -> None:
    written = checkpoint(QUANTIZED[layout])
    stem = "model.language_model.layers.3.self_attn.o_proj."
    broken = copy_of(written.folder, tmp_path / "broken")
    set_element(broken, f"{stem}{scale}", float("nan"))
    with pytest.raises(
        AccountingError, match=f"tensor {stem}{scale} holds a zero, negative or non-finite scale"
    ):
        load(broken)
    missing = copy_of(written.folder, tmp_path / "missing")
    drop_tensors(missing, f"{stem}{scale}")
    with pytest.raises(
        AccountingError, match=f"tensor {stem}weight_scale\\S* is missing|{stem}{scale} is missing"
    ):
        load(missing)


@pytest.mark.parametrize("shape", [(3, 3), (4, 5), (24,), (8, 4)])
def test_block_scales_that_do_not_cover_the_weight(
    checkpoint: Checkpoints, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """o_proj is 64 x 96 in blocks of 16 x 16: 4 x 6 scales."""
    folder = copy_of(checkpoint(QUANTIZED["fp8 block"]).folder, tmp_path / "blocks")
    name = "model.language_model.layers.3.self_attn.o_proj.weight_scale_inv"
    reshape_tensor(folder, name, shape)
    with pytest.raises(AccountingError, match="block scales"):
        load(folder)


def test_a_zero_block_scale_is_a_block_of_zeros(damaged: Path) -> None:
    set_element(damaged, f"{EXPERT}up_proj.weight_scale", 0.0)
    assert all(torch.isfinite(logits).all() for logits in logits_of(load(damaged)))


def test_a_precision_that_is_not_loaded_is_named(damaged: Path) -> None:
    name = f"{LAYER}mlp.shared_expert.down_proj.weight"
    put_tensors(damaged, {name: RawTensor("I8", (64, 80), bytes(64 * 80))})
    with pytest.raises(UnsupportedRequest, match=f"tensor {name} has dtype I8.*Loaded are BF16"):
        load(damaged)


def test_dropping_a_scale_of_a_packed_weight(checkpoint: Checkpoints, tmp_path: Path) -> None:
    folder = copy_of(checkpoint(MOE).folder, tmp_path / "scale")
    drop_scale(folder, f"{EXPERT}gate_proj.weight")
    with pytest.raises(AccountingError, match=f"tensor {EXPERT}gate_proj.weight_scale\\S* is missing"):
        load(folder)
