"""Loading is accounting: quantised layouts stand for the right numbers; what is amiss is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftproof.errors import AccountingError, UnsupportedRequest
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import DenseBackend, WeightStorage
from draftproof.runtime.state_store import WindowKind
from tests.models.reference import assert_same_logits, reference_logits, reference_model, write_dequantized
from tests.support.checkpoints import (
    BF16,
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    FP8_CHANNEL,
    FP8_TENSOR,
    FP32,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    NVFP4_ROUTED_SHARED,
    CheckpointOptions,
    Family,
    WrittenCheckpoint,
)
from tests.support.engines import Settings, load, make_store, random_prompt
from tests.support.faults import (
    copy_of,
    drop_scale,
    drop_tensors,
    fill_tensor,
    flip_tied_flag,
    put_tensors,
    rename_tensors,
    reshape_tensor,
    set_config,
    set_element,
)
from tests.support.raw_safetensors import RawTensor

Checkpoints = Callable[[CheckpointOptions], WrittenCheckpoint]

QUANTIZED = {
    "fp8 block": CheckpointOptions(precision=FP8_BLOCK),
    "fp8 block, moe": CheckpointOptions(moe=True, precision=FP8_BLOCK, scale_inv_dtype="float32", shards=2),
    "fp8 block of 128": CheckpointOptions(moe=True, precision=FP8_BLOCK.with_block(128, 128)),
    "fp8 block, qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP8_BLOCK),
    "fp8 experts": CheckpointOptions(moe=True, precision=FP8_BLOCK_EXPERTS),
    "fp8 tensor": CheckpointOptions(precision=FP8_TENSOR, kv_scales=True),
    "fp8 tensor, qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP8_TENSOR),
    "fp8 channel": CheckpointOptions(moe=True, precision=FP8_CHANNEL),
    "nvfp4 routed": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3),
    "nvfp4 routed, own scales": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shared_scales=False),
    "nvfp4 routed, nvfp4 head": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4),
    "nvfp4 routed, fp8 head": CheckpointOptions(
        moe=True, precision=NVFP4_ROUTED, mtp_precision=FP8_BLOCK_EXPERTS
    ),
    "nvfp4 routed and shared": CheckpointOptions(moe=True, precision=NVFP4_ROUTED_SHARED),
    "nvfp4 mixed": CheckpointOptions(moe=True, precision=NVFP4_MIXED, kv_scales=True),
    "nvfp4 mixed, dense": CheckpointOptions(precision=NVFP4_MIXED),
    "nvfp4 compressed": CheckpointOptions(
        moe=True, precision=NVFP4_COMPRESSED, mtp_precision=MTP_NVFP4_COMPRESSED
    ),
    "nvfp4 compressed, dense": CheckpointOptions(precision=NVFP4_COMPRESSED),
}
PROMPT = random_prompt(40, 2)


@torch.inference_mode()
def logits_of(model: LoadedModel) -> tuple[Tensor, Tensor]:
    """Logits of target and head over the prompt, [rows, vocab] each."""
    assert model.head is not None
    store = make_store(model, Settings(slots=1, max_length=len(PROMPT)))
    store.open_slot(0, [2, 1, 3])
    rows = torch.tensor([PROMPT[:-1]])
    window = store.begin([0], [rows.shape[1]], WindowKind.EXTEND)
    hidden = model.target.forward(rows, window.window)
    window.commit([rows.shape[1]])
    attention = store.attention_rows([0], [0], [rows.shape[1]])
    drafted = model.head.forward(torch.tensor([PROMPT[1:]]), hidden, attention, store.head_caches)
    return model.target.logits(hidden)[0], model.head.logits(drafted)[0]


@pytest.fixture(scope="module")
def dequantized(
    checkpoint: Checkpoints, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, tuple[Tensor, Tensor]]]:
    """The same weights as float32 on disk: the folder, and our logits from it."""

    @cache
    def get(layout: str) -> tuple[Path, tuple[Tensor, Tensor]]:
        folder = tmp_path_factory.mktemp("dequantized", numbered=True) / "checkpoint"
        write_dequantized(checkpoint(QUANTIZED[layout]), folder)
        return folder, logits_of(load(folder))

    return get


@pytest.mark.parametrize("storage", WeightStorage)
@pytest.mark.parametrize("layout", QUANTIZED)
def test_quantised_weights_stand_for_their_real_numbers(
    checkpoint: Checkpoints,
    dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]],
    layout: str,
    storage: WeightStorage,
) -> None:
    _, expected = dequantized(layout)
    found = logits_of(load(checkpoint(QUANTIZED[layout]).folder, storage=storage))
    for ours, real in zip(found, expected, strict=True):
        assert_same_logits(ours, real)


@pytest.mark.parametrize(
    "layout", ["fp8 block, moe", "fp8 tensor", "nvfp4 routed", "nvfp4 mixed", "nvfp4 compressed"]
)
def test_the_half_precision_backend_gives_the_same_numbers(
    checkpoint: Checkpoints, dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]], layout: str
) -> None:
    from draftproof.kernels.half_linear import fbgemm

    if not fbgemm.is_available():
        pytest.skip("this build of torch has no FBGEMM")
    _, expected = dequantized(layout)
    found = logits_of(load(checkpoint(QUANTIZED[layout]).folder, backend=DenseBackend.FBGEMM_HALF))
    for ours, real in zip(found, expected, strict=True):
        assert_same_logits(ours, real)


@pytest.mark.parametrize(
    "layout", ["fp8 block, qwen3-next", "nvfp4 mixed, dense", "nvfp4 routed, own scales"]
)
def test_transformers_agrees_on_the_real_numbers(
    dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]], layout: str
) -> None:
    folder, (target, _) = dequantized(layout)
    expected = reference_logits(reference_model(folder), torch.tensor([PROMPT[:-1]]))[0]
    assert_same_logits(target, expected)


def test_quantisation_changed_something(checkpoint: Checkpoints) -> None:
    """Otherwise the comparisons above would compare a thing with itself."""
    exact = logits_of(load(checkpoint(CheckpointOptions(moe=True, precision=FP32)).folder))
    for layout in ("fp8 channel", "nvfp4 routed and shared", "nvfp4 compressed"):
        found = logits_of(load(checkpoint(QUANTIZED[layout]).folder))
        assert (found[0] - exact[0]).abs().max() > 0.01


def test_global_scales_of_gate_and_up_may_differ(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """0.010 beside 0.013, as released checkpoints have them: one scale for both halves would be garbage."""
    options = replace(QUANTIZED["nvfp4 routed, own scales"], seed=5)
    written = checkpoint(options)
    folder = copy_of(written.folder, tmp_path / "unequal")
    tensors = dict(written.tensors)
    for expert in range(options.sizes.experts):
        stem = f"{options.text_prefix}layers.1.mlp.experts.{expert}.up_proj."
        scale = written.stored[f"{stem}weight_scale_2"]
        fill_tensor(folder, f"{stem}weight_scale_2", float(scale) * 1.3)
        tensors[f"{stem}weight"] = tensors[f"{stem}weight"] * 1.3
    real = write_dequantized(replace(written, tensors=tensors), tmp_path / "real")
    expected, untouched = logits_of(load(real)), logits_of(load(written.folder))
    assert (expected[0] - untouched[0]).abs().max() > 0.01
    for storage in WeightStorage:
        assert_same_logits(logits_of(load(folder, storage=storage))[0], expected[0])


def test_both_dialects_of_nvfp4_give_the_same_model(checkpoint: Checkpoints) -> None:
    """Stored as multiplier or as divisor: equal up to the rounding of the reciprocal."""
    modelopt = replace(QUANTIZED["nvfp4 routed and shared"], shared_scales=False)
    divisors = replace(
        NVFP4_COMPRESSED,
        encodings={
            group: kind for group, kind in NVFP4_COMPRESSED.encodings.items() if group.value != "attention"
        },
    )
    compressed = replace(modelopt, precision=divisors)
    for storage in WeightStorage:
        first, second = (
            logits_of(load(checkpoint(options).folder, storage=storage)) for options in (modelopt, compressed)
        )
        assert_same_logits(second[0], first[0])


def test_block_scales_may_have_modelopts_name(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """`weight_scale` in two dimensions, as its FP8_PB_WO writes it, instead of `weight_scale_inv`."""
    written = checkpoint(QUANTIZED["fp8 block"])
    folder = copy_of(written.folder, tmp_path / "renamed")
    rename_tensors(folder, lambda name: name.replace("weight_scale_inv", "weight_scale"))
    for ours, other in zip(logits_of(load(folder)), logits_of(load(written.folder)), strict=True):
        assert torch.equal(ours, other)


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


def test_bf16_and_fp32_storage_of_the_same_numbers_are_one_model(
    checkpoint: Checkpoints, tmp_path: Path
) -> None:
    written = checkpoint(CheckpointOptions(moe=True, precision=BF16))
    real = write_dequantized(written, tmp_path / "wide")
    for ours, other in zip(logits_of(load(written.folder)), logits_of(load(real)), strict=True):
        assert torch.equal(ours, other)
