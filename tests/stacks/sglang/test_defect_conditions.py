"""Which checkpoints a known defect concerns: by their files, never by a config's promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang import defect_conditions as concerns
from draftproof.stacks.situation import Situation
from tests.support.served_checkpoints import served_release, with_config

NOWHERE = Situation()


def stored(name: str) -> ServedCheckpoint:
    return replace(served_release(name), from_files=True)


def packed(checkpoint: ServedCheckpoint) -> ServedCheckpoint:
    head = {name: replace(tensor, dtype="U8") for name, tensor in checkpoint.head.items()}
    return replace(checkpoint, head=head)


def test_a_packed_head_in_modelopts_fp4() -> None:
    checkpoint = stored("nvidia_Qwen3.5-397B-A17B-NVFP4")
    assert not concerns.packed_head_in_modelopt(checkpoint, NOWHERE)
    assert concerns.packed_head_in_modelopt(packed(checkpoint), NOWHERE)
    promised = replace(packed(checkpoint), from_files=False)
    assert not concerns.packed_head_in_modelopt(promised, NOWHERE)


def test_single_projections_on_a_list() -> None:
    checkpoint = stored("RedHatAI_Qwen3.5-9B-quantized.w4a16")
    assert not concerns.parts_listed(checkpoint, NOWHERE)
    section = dict(checkpoint.config["quantization_config"])
    section["ignore"] = ["lm_head", "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.self_attn.k_proj"]
    assert concerns.parts_listed(with_config(checkpoint, quantization_config=section), NOWHERE)


@pytest.mark.parametrize(
    ("architecture", "file", "applies"),
    [
        ("Qwen3_5ForConditionalGeneration", "mtp.safetensors", True),
        ("Qwen3_5ForConditionalGeneration", "model-q4.safetensors", False),
        ("Glm4MoeForCausalLM", "mtp.safetensors", False),
    ],
)
def test_a_head_file_that_the_index_does_not_list(architecture: str, file: str, applies: bool) -> None:
    checkpoint = replace(
        with_config(stored("Qwen_Qwen3.5-9B"), architectures=[architecture]), unindexed=(file,)
    )
    assert concerns.unindexed_elsewhere(checkpoint, NOWHERE) is applies


def test_a_plain_head_of_quark_is_only_a_problem_when_it_is_not_listed() -> None:
    checkpoint = stored("amd_Qwen3.5-397B-A17B-MXFP4")
    assert not concerns.plain_head_quark_unlisted(checkpoint, NOWHERE)
    section = {**checkpoint.config["quantization_config"], "exclude": ["lm_head"]}
    assert concerns.plain_head_quark_unlisted(with_config(checkpoint, quantization_config=section), NOWHERE)


def test_quark_lists_are_mapped_for_61_layers() -> None:
    checkpoint = with_config(stored("deepseek-ai_DeepSeek-R1"), quantization_config={"quant_method": "quark"})
    assert not concerns.quark_at_other_depth(checkpoint, NOWHERE)
    assert concerns.quark_at_other_depth(with_config(checkpoint, num_hidden_layers=60), NOWHERE)


def test_several_layers() -> None:
    checkpoint = stored("deepseek-ai_DeepSeek-R1")
    assert not concerns.several_layers(checkpoint, NOWHERE)
    assert concerns.several_layers(with_config(checkpoint, num_nextn_predict_layers=3), NOWHERE)
    assert concerns.several_layers_of_mimo(stored("XiaomiMiMo_MiMo-V2.6-Flash-RL"), NOWHERE)


def test_the_section_is_that_of_config_json_before_that_of_the_other_file() -> None:
    assert concerns.method_of(stored("nvidia_Qwen3.5-122B-A10B-NVFP4")) == "modelopt"
    assert concerns.method_of(stored("nvidia_Qwen3.6-27B-NVFP4")) == "modelopt"
    assert concerns.method_of(stored("Qwen_Qwen3.5-9B")) == ""
    assert concerns.method_of(stored("deepseek-ai_DeepSeek-R1")) == "fp8"
