"""Attention backend, page size, MoE runner and quantization as SGLang 0.5.23 resolves them itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sglang_kernels import (
    BF16,
    DEEPSEEK,
    EXPLICIT,
    FP8,
    GLM,
    HEADLINE,
    NEXTN,
    NONE,
    TEXT_ONLY,
    resolved,
)

TRTLLM = "flashinfer_trtllm"
COMMANDS = {"none": NONE, "NEXTN": NEXTN, "NEXTN 3/1/4": EXPLICIT}
ROWS = (
    # checkpoint, command, SM, attention backend, page size, MoE runner, quantization
    (HEADLINE, "none", 90, "fa3", 1, "auto", None),
    (HEADLINE, "NEXTN", 90, "fa3", 1, "auto", None),
    (HEADLINE, "NEXTN 3/1/4", 90, "fa3", 1, "auto", None),
    (HEADLINE, "none", 100, "triton", 1, TRTLLM, "modelopt_fp4"),
    (HEADLINE, "NEXTN", 100, "triton", 1, TRTLLM, "modelopt_fp4"),
    (HEADLINE, "NEXTN 3/1/4", 100, "trtllm_mha", 64, TRTLLM, "modelopt_fp4"),
    (HEADLINE, "NEXTN", 103, "triton", 1, TRTLLM, "modelopt_fp4"),
    (HEADLINE, "NEXTN 3/1/4", 103, "trtllm_mha", 64, TRTLLM, "modelopt_fp4"),
    (HEADLINE, "none", 120, "flashinfer", 1, "auto", None),
    (HEADLINE, "NEXTN", 120, "flashinfer", 1, "auto", None),
    (HEADLINE, "NEXTN 3/1/4", 120, "flashinfer", 1, "auto", None),
    (FP8, "NEXTN", 90, "fa3", 1, "auto", None),
    (FP8, "NEXTN", 100, "triton", 1, TRTLLM, "fp8"),
    (FP8, "NEXTN 3/1/4", 100, "trtllm_mha", 64, TRTLLM, "fp8"),
    (FP8, "NEXTN", 120, "flashinfer", 1, "auto", None),
    (BF16, "NEXTN", 90, "fa3", 1, "auto", None),
    (BF16, "none", 100, "triton", 1, TRTLLM, None),
    (BF16, "NEXTN 3/1/4", 100, "trtllm_mha", 64, TRTLLM, None),
    (BF16, "NEXTN", 120, "flashinfer", 1, "auto", None),
    (TEXT_ONLY, "NEXTN", 90, "fa3", 1, "auto", None),
    (TEXT_ONLY, "none", 100, "trtllm_mha", 64, "auto", None),
    (TEXT_ONLY, "NEXTN", 100, "flashinfer", 1, "auto", None),
    (TEXT_ONLY, "NEXTN 3/1/4", 100, "trtllm_mha", 64, "auto", None),
    (TEXT_ONLY, "NEXTN", 120, "flashinfer", 1, "auto", None),
    (GLM, "NEXTN", 90, "fa3", 1, "auto", None),
    (GLM, "NEXTN", 100, "flashinfer", 1, TRTLLM, "modelopt_fp4"),
    (GLM, "NEXTN 3/1/4", 100, "trtllm_mha", 64, TRTLLM, "modelopt_fp4"),
    (GLM, "NEXTN", 120, "flashinfer", 1, "auto", None),
    (DEEPSEEK, "NEXTN", 90, "fa3", 1, "auto", None),
    (DEEPSEEK, "NEXTN", 100, "trtllm_mla", 64, TRTLLM, "fp8"),
    (DEEPSEEK, "NEXTN", 120, "triton", 1, "auto", None),
)


FIELDS = ("attention_backend", "page_size", "moe_runner_backend", "quantization")


@pytest.mark.parametrize(("name", "command", "capability", *FIELDS), ROWS)
def test_what_is_in_force(
    name: str,
    command: str,
    capability: int,
    attention_backend: str,
    page_size: int,
    moe_runner_backend: str,
    quantization: str | None,
) -> None:
    resolution = resolved("0.5.23", name, capability, **COMMANDS[command])
    assert resolution.is_complete, resolution.lost
    seen: tuple[Any, ...] = tuple(resolution.value(field) for field in FIELDS)
    assert seen == (attention_backend, page_size, moe_runner_backend, quantization)


@pytest.mark.parametrize("capability", [90, 100, 120])
def test_naming_the_quantization_gives_sm120_a_runner(capability: int) -> None:
    resolution = resolved("0.5.23", HEADLINE, capability, **NEXTN, quantization="modelopt_fp4")
    runner = {90: "auto", 100: TRTLLM, 120: "flashinfer_cutlass"}[capability]
    assert resolution.value("moe_runner_backend") == runner


def test_a_state_in_bf16_by_option_gives_sm100_flashinfer_for_decode() -> None:
    resolution = resolved("0.5.23", HEADLINE, 100, **NEXTN, mamba_ssm_dtype="bfloat16")
    assert resolution.value("linear_attn_decode_backend") == "flashinfer"


def test_four_branches_leave_sm100_on_triton() -> None:
    command = {**NEXTN, "speculative_num_steps": 3, "speculative_eagle_topk": 4}
    resolution = resolved("0.5.23", HEADLINE, 100, **command, speculative_num_draft_tokens=8)
    assert resolution.value("attention_backend") == "triton"


@pytest.mark.parametrize("command", [NONE, NEXTN])
def test_speculation_limits_requests_and_keeps_the_overlap_schedule(command: dict[str, Any]) -> None:
    resolution = resolved("0.5.23", HEADLINE, 90, **command)
    assert resolution.value("max_running_requests") == (48 if command else None)
    assert resolution.value("mamba_radix_cache_strategy") == "extra_buffer"
    assert resolution.value("disable_overlap_schedule") is False
