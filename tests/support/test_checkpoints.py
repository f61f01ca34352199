"""Generated checkpoints have the layouts and counts of the public releases, and transformers loads them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.support.checkpoints import (
    ALL_PRECISIONS,
    BF16,
    FP8_BLOCK,
    FP32,
    MTP_NVFP4,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    CheckpointOptions,
    ExpertLayout,
    Family,
    Sizes,
    write_checkpoint,
)

EXPERTS = Sizes().experts
LINEAR_LAYERS, FULL_LAYERS = 3, 1
VISION_TENSORS = 3 + 12 + 6


def trunk_count(mlp: int, mixer: int = 9) -> int:
    """Embedding, final norm and lm_head, and per layer two norms, the mixer and the MLP."""
    return 3 + LINEAR_LAYERS * (2 + mixer + mlp) + FULL_LAYERS * (2 + 6 + mlp)


@pytest.mark.parametrize(
    ("options", "trunk", "head", "vision"),
    [
        (CheckpointOptions(), trunk_count(3), 15, VISION_TENSORS),
        (CheckpointOptions(vision=False), trunk_count(3), 15, 0),
        (CheckpointOptions(tied=True), trunk_count(3) - 1, 15, VISION_TENSORS),
        (CheckpointOptions(mtp=False), trunk_count(3), 0, VISION_TENSORS),
        (CheckpointOptions(moe=True), trunk_count(7), 17 + 3 * EXPERTS, VISION_TENSORS),
        (CheckpointOptions(moe=True, mtp_experts=ExpertLayout.FUSED), trunk_count(7), 19, VISION_TENSORS),
        (
            CheckpointOptions(Family.QWEN3_5_TEXT, moe=True, trunk_experts=ExpertLayout.PER_EXPERT),
            trunk_count(5 + 3 * EXPERTS),
            17 + 3 * EXPERTS,
            0,
        ),
        (
            CheckpointOptions(Family.QWEN3_NEXT, moe=True),
            trunk_count(5 + 3 * EXPERTS, mixer=7),
            17 + 3 * EXPERTS,
            0,
        ),
        (CheckpointOptions(precision=FP8_BLOCK), trunk_count(3) + 4 * 3 + 3 * 3 + 4, 22, VISION_TENSORS),
        (
            CheckpointOptions(moe=True, precision=NVFP4_ROUTED),
            trunk_count(5 + 4 * 3 * EXPERTS),
            17 + 3 * EXPERTS,
            VISION_TENSORS,
        ),
        (
            CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4),
            trunk_count(5 + 4 * 3 * EXPERTS),
            17 + 4 * 3 + 3 * 3 + 4 * 3 * EXPERTS,
            VISION_TENSORS,
        ),
        (
            CheckpointOptions(moe=True, precision=FP8_BLOCK),
            trunk_count(5 + 3 + 2 * 3 * EXPERTS) + 3 * 3 + 4,
            17 + 3 * EXPERTS + 7 + 3 * EXPERTS,
            VISION_TENSORS,
        ),
    ],
    ids=lambda value: None,
)
def test_tensor_counts_follow_the_public_formulas(checkpoint, options, trunk, head, vision):
    stored = checkpoint(options).stored
    parts = Counter(
        "mtp" if name.startswith("mtp.") else "vision" if "visual." in name else "trunk" for name in stored
    )
    assert (parts["trunk"], parts["mtp"], parts["vision"]) == (trunk, head, vision)


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_files_hold_what_the_record_says(checkpoint, precision, moe):
    written = checkpoint(CheckpointOptions(moe=moe, precision=precision, shards=2))
    on_disk = {}
    for path in sorted(written.folder.glob("*.safetensors")):
        on_disk |= load_file(path)
    assert on_disk.keys() == written.stored.keys()
    for name, tensor in written.stored.items():
        assert on_disk[name].dtype == tensor.dtype
        assert on_disk[name].shape == tensor.shape
        assert torch.equal(on_disk[name].float(), tensor.float()), name
    assert json.loads((written.folder / "config.json").read_text()) == written.config


def largest_relative_error(precision):
    if precision is FP32:
        return 0.0
    if precision is BF16:
        return 0.005
    return 0.05 if "fp8" in precision.name else 0.2


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
def test_rounding_stays_within_what_the_precision_allows(checkpoint, precision):
    written = checkpoint(CheckpointOptions(moe=True, precision=precision))
    assert written.tensors.keys() == written.exact.keys()
    worst = 0.0
    for name, exact in written.exact.items():
        assert written.tensors[name].dtype == torch.float32
        error = (written.tensors[name] - exact).norm() / exact.norm()
        worst = max(worst, error.item())
    assert worst <= largest_relative_error(precision)


def test_equal_seeds_give_equal_weights_in_every_layout(checkpoint):
    fused = checkpoint(CheckpointOptions(moe=True, mtp_experts=ExpertLayout.FUSED))
    split = checkpoint(CheckpointOptions(moe=True, trunk_experts=ExpertLayout.PER_EXPERT))
    other = checkpoint(CheckpointOptions(moe=True, seed=1))
    for stem in ("model.language_model.layers.2.mlp.experts", "mtp.layers.0.mlp.experts"):
        gate_up, down = fused.exact[f"{stem}.gate_up_proj"], fused.exact[f"{stem}.down_proj"]
        parts = [split.exact[f"{stem}.5.{name}_proj.weight"] for name in ("gate", "up", "down")]
        assert torch.equal(gate_up[5], torch.cat(parts[:2]))
        assert torch.equal(down[5], parts[2])
    name = "model.language_model.layers.0.linear_attn.in_proj_qkv.weight"
    assert torch.equal(fused.exact[name], split.exact[name])
    assert not torch.equal(fused.exact[name], other.exact[name])


def test_no_matrix_of_the_trunk_or_the_head_is_square(checkpoint):
    for options in (CheckpointOptions(), CheckpointOptions(Family.QWEN3_NEXT, moe=True)):
        for name, tensor in checkpoint(options).exact.items():
            if tensor.dim() == 2 and "visual." not in name:
                assert tensor.shape[0] != tensor.shape[1], name


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_members_of_fused_groups_share_the_global_scale_unless_told_otherwise(checkpoint, moe):
    options = CheckpointOptions(moe=moe, precision=NVFP4_ROUTED)
    stem = "model.language_model.layers.0.mlp." + ("experts.3." if moe else "")
    gate, up, down = (f"{stem}{name}_proj.weight_scale_2" for name in ("gate", "up", "down"))
    shared, own = checkpoint(options).stored, checkpoint(replace(options, shared_scales=False)).stored
    assert shared[gate] == shared[up] != shared[down]
    assert own[gate] != own[up]


def test_both_nvfp4_dialects_stand_for_nearly_the_same_weights(checkpoint):
    modelopt = checkpoint(CheckpointOptions(moe=True, precision=NVFP4_ROUTED))
    compressed = checkpoint(CheckpointOptions(moe=True, precision=NVFP4_COMPRESSED))
    stem = "model.language_model.layers.0.mlp.experts.3.down_proj."
    torch.testing.assert_close(compressed.tensors[f"{stem}weight"], modelopt.tensors[f"{stem}weight"])
    assert compressed.stored[f"{stem}weight_global_scale"].shape == (1,)
    assert f"{stem}weight" not in compressed.stored


def test_mixed_recipe_quantizes_mixers_and_head_differently(checkpoint):
    written = checkpoint(CheckpointOptions(moe=True, precision=NVFP4_MIXED))
    quantized = json.loads((written.folder / "hf_quant_config.json").read_text())["quantization"]
    assert quantized["quant_algo"] == "MIXED_PRECISION"
    layers = quantized["quantized_layers"]
    assert layers["lm_head"] == {"quant_algo": "NVFP4", "group_size": 16}
    assert layers["model.language_model.layers.3.self_attn.q_proj"] == {"quant_algo": "FP8"}
    assert "model.language_model.layers.0.mlp.experts" in layers
    assert "mtp*" in quantized["exclude_modules"]
    assert written.stored["model.language_model.layers.3.self_attn.q_proj.weight_scale"].shape == ()
    assert written.stored["lm_head.weight"].dtype == torch.uint8


@pytest.mark.parametrize("precision", ALL_PRECISIONS[2:], ids=lambda precision: precision.name)
def test_exclude_lists_agree_with_the_tensors(checkpoint, precision):
    """Literal and `prefix*` entries cover every plain linear and no quantized one."""
    written = checkpoint(CheckpointOptions(moe=True, precision=precision))
    section = written.config["quantization_config"]
    patterns = section.get("ignore", section.get("modules_to_not_convert"))
    scales = ("_scale", "_scale_inv")
    quantized = {name.rpartition(".")[0] for name in written.stored if name.endswith(scales)}
    for name in written.exact:
        module = name.removesuffix(".weight")
        excluded = any(
            module.startswith(pattern[:-1]) if pattern.endswith("*") else module == pattern
            for pattern in patterns
        )
        if module in quantized:
            assert not excluded, module
        elif module.endswith(("_proj", "mlp.gate", "shared_expert_gate", "lm_head", "mtp.fc")):
            assert excluded, module


def test_qwen3_next_declares_no_mtp_and_the_others_do(checkpoint):
    assert "mtp" not in json.dumps(checkpoint(CheckpointOptions(Family.QWEN3_NEXT, moe=True)).config)
    assert checkpoint(CheckpointOptions()).config["text_config"]["mtp_num_hidden_layers"] == 1
    assert checkpoint(CheckpointOptions(Family.QWEN3_5_TEXT)).config["mtp_num_hidden_layers"] == 1
    assert checkpoint(CheckpointOptions(mtp=False)).config["text_config"]["mtp_num_hidden_layers"] == 0


def test_index_names_every_tensor_and_the_total_size(checkpoint):
    written = checkpoint(CheckpointOptions(moe=True, shards=3))
    index = json.loads((written.folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == written.stored.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in written.stored.values())
    for file in set(index["weight_map"].values()):
        assert all(index["weight_map"][name] == file for name in load_file(written.folder / file))


@pytest.mark.parametrize(
    "arguments",
    [
        {"family": Family.QWEN3_NEXT},
        {"tied": True, "precision": NVFP4_MIXED},
        {"moe": True, "precision": NVFP4_ROUTED, "trunk_experts": ExpertLayout.FUSED},
        {"moe": True, "precision": FP8_BLOCK, "mtp_experts": ExpertLayout.FUSED},
    ],
)
def test_options_that_no_checkpoint_can_have_are_refused(arguments):
    with pytest.raises(ValueError, match=r"mixture of experts|tied|per expert"):
        CheckpointOptions(**arguments)


def test_an_existing_checkpoint_is_not_overwritten(tmp_path):
    write_checkpoint(tmp_path, CheckpointOptions(mtp=False))
    with pytest.raises(FileExistsError):
        write_checkpoint(tmp_path, CheckpointOptions())


LOADABLE = {
    "dense": ("Qwen3_5ForConditionalGeneration", CheckpointOptions()),
    "dense-tied": ("Qwen3_5ForConditionalGeneration", CheckpointOptions(tied=True)),
    "dense-float32": ("Qwen3_5ForConditionalGeneration", CheckpointOptions(precision=FP32)),
    "dense-text": ("Qwen3_5ForCausalLM", CheckpointOptions(Family.QWEN3_5_TEXT)),
    "moe-fused": ("Qwen3_5MoeForConditionalGeneration", CheckpointOptions(moe=True, shards=3)),
    "moe-per-expert": (
        "Qwen3_5MoeForConditionalGeneration",
        CheckpointOptions(moe=True, trunk_experts=ExpertLayout.PER_EXPERT),
    ),
    "moe-text": ("Qwen3_5MoeForCausalLM", CheckpointOptions(Family.QWEN3_5_TEXT, moe=True)),
    "next": ("Qwen3NextForCausalLM", CheckpointOptions(Family.QWEN3_NEXT, moe=True)),
}
PROMPT = [(position * 37 + 11) % 290 for position in range(23)]


@pytest.fixture(scope="module")
def transformers_model(checkpoint):
    """Loads a case of LOADABLE with transformers, in float32; the answer is (model, loading report)."""
    import transformers

    def load(case):
        name, options = LOADABLE[case]
        model, report = getattr(transformers, name).from_pretrained(
            checkpoint(options).folder, dtype=torch.float32, output_loading_info=True
        )
        return model.eval(), report

    return load


@pytest.mark.parametrize("case", LOADABLE)
def test_transformers_loads_every_tensor_and_its_logits_are_not_flat(transformers_model, case):
    model, report = transformers_model(case)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert all(key.startswith("mtp.") for key in report["unexpected_keys"])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT])).logits[0]
    assert torch.isfinite(logits).all()
    assert 1.0 < logits.std() < 4.0


@pytest.mark.parametrize("case", ["dense", "dense-tied", "moe-fused"])
def test_greedy_generation_does_not_collapse(transformers_model, case):
    model, _ = transformers_model(case)
    with torch.no_grad():
        answer = model.generate(
            input_ids=torch.tensor([PROMPT]),
            attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
            max_new_tokens=40,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=300,
        )
    assert len(set(answer[0, len(PROMPT) :].tolist())) > 25


def test_layouts_compute_the_same_function(transformers_model):
    """Fused, per expert, flat, and Qwen3-Next's interleaved projections: one model, five ways to write it."""
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        logits = [
            transformers_model(case)[0](input_ids=ids).logits
            for case in ("moe-fused", "moe-per-expert", "moe-text", "next")
        ]
    for other in logits[1:]:
        torch.testing.assert_close(other, logits[0], atol=1e-3, rtol=1e-3)


def test_the_tokenizer_round_trips_any_text_and_knows_the_special_tokens(checkpoint):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint(CheckpointOptions(tokenizer=True)).folder)
    text = "the cat and 猫 🐈\n\tdéjà vu"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>", "</think>"]) == [300, 302, 311]
    messages = [{"role": "user", "content": "hi"}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert max(tokenizer.encode(prompt)) < Sizes().vocab
