"""The quantisation that vLLM recognises, by its own rules."""

from __future__ import annotations

import pytest

from draftproof.stacks.vllm.code.draft_model import draft_evaluator
from draftproof.stacks.vllm.code.quantisation import quantisation
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release

NEWEST = draft_evaluator(real_stack("vllm", "0.33.0").tree)


@pytest.mark.parametrize(
    ("release", "method"),
    [
        ("Qwen_Qwen3.5-27B-FP8", "fp8"),
        ("nvidia_Qwen3.5-397B-A17B-NVFP4", "modelopt_fp4"),
        ("nvidia_Qwen3.5-397B-A17B-NVFP4-V2", "modelopt_mixed"),
        ("RedHatAI_Qwen3.5-9B-quantized.w4a16", "compressed-tensors"),
        ("Qwen_Qwen3.5-35B-A3B-GPTQ-Int4", "auto_gptq"),
        ("amd_Qwen3.5-397B-A17B-MXFP4", "quark"),
    ],
)
def test_every_format_has_vllms_name(release: str, method: str) -> None:
    found = quantisation(NEWEST, served_release(release)).value
    assert found is not None
    assert found.method == method
    assert found.refusal is None


def test_none_is_absent() -> None:
    found = quantisation(NEWEST, served_release("Qwen_Qwen3.5-27B"))
    assert found.understood
    assert found.value is None


def test_the_layers_of_a_mixed_quantisation_come_from_the_file_that_has_them() -> None:
    found = quantisation(NEWEST, served_release("nvidia_Qwen3.6-27B-NVFP4")).value
    assert found is not None
    section = found.section.get("quantization", found.section)
    assert section["quantized_layers"]


def test_a_quantisation_that_an_older_version_does_not_know_ends_its_start() -> None:
    old = draft_evaluator(real_stack("vllm", "0.19.0").tree)
    found = quantisation(old, served_release("nvidia_Qwen3.6-27B-NVFP4"))
    assert found.value is not None
    assert found.value.refusal is not None
    assert "Unknown ModelOpt quant algo" in found.sentence
    assert found.places[0].line == 191
