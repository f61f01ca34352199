"""The tables of kernels by version and GPU, asked of each version's own selectors."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from draftproof.stacks.evaluation import Evaluator
from draftproof.stacks.reading import Reading
from draftproof.stacks.vllm.backend.kernel_machine import Machine, kernel_evaluator, on_other_machine
from draftproof.stacks.vllm.backend.kernel_questions import Answer, ask
from tests.support.real_stacks import real_stack
from tests.support.vllm_launch import VERSIONS

LAYER = {
    "hidden": 4096,
    "intermediate": 1024,
    "experts": 512,
    "per_token": 10,
    "ranks": 4,
    "expert_parallel": False,
    "eplb": False,
    "backend": "auto",
    "all2all": "allgather_reducescatter",
    "sigmoid": False,
}
HEADS = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}


@functools.cache
def evaluator(version: str) -> Evaluator:
    return kernel_evaluator(real_stack("vllm", version).tree, Machine(90, True, True))


def asked(
    version: str,
    capability: int,
    question: str,
    *arguments: Any,
    flashinfer: bool = True,
    humming: bool = True,
) -> Reading[Answer]:
    machine = Machine(
        capability,
        has_flashinfer=flashinfer,
        has_humming=humming and version != "0.19.0",
        has_deep_gemm=version != "0.19.0",
    )
    shared = on_other_machine(evaluator(version), real_stack("vllm", version).tree, machine)
    return ask(shared, question, *arguments)


def name(reading: Reading[Answer]) -> str:
    assert reading.value is not None, reading.sentence
    assert reading.value.error is None, reading.value.error
    value = reading.value.value
    return value[0] if isinstance(value, list) else str(value)


NVFP4_EXPERTS = [
    # version, capability, with FlashInfer, without
    ("0.33.0", 80, "MARLIN", "MARLIN"),
    ("0.33.0", 89, "MARLIN", "MARLIN"),
    ("0.33.0", 90, "HUMMING", "HUMMING"),
    ("0.33.0", 100, "FLASHINFER_TRTLLM", "VLLM_CUTLASS"),
    ("0.33.0", 103, "FLASHINFER_TRTLLM", "VLLM_CUTLASS"),
    ("0.33.0", 120, "FLASHINFER_CUTLASS", "VLLM_CUTLASS"),
    ("0.33.0", 121, "FLASHINFER_CUTLASS", "VLLM_CUTLASS"),
    ("0.26.0", 90, "MARLIN", "MARLIN"),
    ("0.26.0", 100, "FLASHINFER_TRTLLM", "VLLM_CUTLASS"),
    ("0.26.0", 120, "FLASHINFER_CUTLASS", "VLLM_CUTLASS"),
    ("0.19.0", 90, "MARLIN", "MARLIN"),
    ("0.19.0", 100, "FLASHINFER_TRTLLM", "VLLM_CUTLASS"),
    ("0.19.0", 120, "FLASHINFER_CUTLASS", "VLLM_CUTLASS"),
]


@pytest.mark.parametrize(("version", "capability", "with_it", "without"), NVFP4_EXPERTS)
def test_experts_in_nvfp4(version: str, capability: int, with_it: str, without: str) -> None:
    assert name(asked(version, capability, "nvfp4_experts", LAYER, False)) == with_it
    assert name(asked(version, capability, "nvfp4_experts", LAYER, False, flashinfer=False)) == without


@pytest.mark.parametrize("capability", [90, 100, 120])
def test_weight_only_experts_go_to_weight_only_kernels(capability: int) -> None:
    backend = name(asked("0.33.0", capability, "nvfp4_experts", LAYER, True))
    assert backend == ("HUMMING" if capability == 90 else "MARLIN")


def test_humming_outranks_marlin_on_sm90_when_it_is_there() -> None:
    assert name(asked("0.33.0", 90, "nvfp4_experts", LAYER, False, humming=False)) == "MARLIN"
    assert name(asked("0.33.0", 90, "nvfp4_linear", False, humming=False)) == "MarlinNvFp4LinearKernel"


BF16_EXPERTS = [
    ("0.33.0", 90, "TRITON", "TRITON"),
    ("0.33.0", 100, "FLASHINFER_TRTLLM", "TRITON"),
    ("0.33.0", 120, "FLASHINFER_CUTLASS", "TRITON"),
    ("0.26.0", 90, "TRITON", "TRITON"),
    ("0.26.0", 100, "FLASHINFER_TRTLLM", "TRITON"),
    ("0.26.0", 120, "FLASHINFER_CUTLASS", "TRITON"),
    ("0.19.0", 100, "TRITON", "TRITON"),
    ("0.19.0", 120, "TRITON", "TRITON"),
]


@pytest.mark.parametrize(("version", "capability", "with_it", "without"), BF16_EXPERTS)
def test_experts_in_bf16(version: str, capability: int, with_it: str, without: str) -> None:
    assert name(asked(version, capability, "unquantised_experts", LAYER)) == with_it
    assert name(asked(version, capability, "unquantised_experts", LAYER, flashinfer=False)) == without


FP8_EXPERTS = [
    (90, "TRITON", "TRITON"),
    (100, "FLASHINFER_TRTLLM", "DEEPGEMM"),
    (120, "DEEPGEMM", "DEEPGEMM"),
]


@pytest.mark.parametrize(("capability", "with_it", "without"), FP8_EXPERTS)
def test_experts_in_block_fp8(capability: int, with_it: str, without: str) -> None:
    assert name(asked("0.33.0", capability, "fp8_experts", LAYER, True)) == with_it
    assert name(asked("0.33.0", capability, "fp8_experts", LAYER, True, flashinfer=False)) == without


def test_experts_of_several_ranks_in_block_fp8_on_sm90() -> None:
    spread = {**LAYER, "expert_parallel": True}
    assert name(asked("0.33.0", 90, "fp8_experts", spread, True)) == "FLASHINFER_CUTLASS"


LINEAR = [
    ("0.33.0", 90, "HummingNvFp4LinearKernel", "HummingNvFp4LinearKernel"),
    ("0.33.0", 100, "FlashInferCuteDslNvFp4LinearKernel", "CutlassNvFp4LinearKernel"),
    ("0.33.0", 120, "FlashInferCutlassNvFp4LinearKernel", "CutlassNvFp4LinearKernel"),
    ("0.26.0", 90, "MarlinNvFp4LinearKernel", "MarlinNvFp4LinearKernel"),
    ("0.26.0", 100, "FlashInferCuteDslNvFp4LinearKernel", "CutlassNvFp4LinearKernel"),
    ("0.26.0", 120, "FlashInferCutlassNvFp4LinearKernel", "CutlassNvFp4LinearKernel"),
]


@pytest.mark.parametrize(("version", "capability", "with_it", "without"), LINEAR)
def test_dense_layers_in_nvfp4(version: str, capability: int, with_it: str, without: str) -> None:
    assert name(asked(version, capability, "nvfp4_linear", False)) == with_it
    assert name(asked(version, capability, "nvfp4_linear", False, flashinfer=False)) == without


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [
        (90, "HummingNvFp4LinearKernel"),
        (100, "FlashInferCuteDslNvFp4W4A16LinearKernel"),
        (120, "MarlinNvFp4LinearKernel"),
    ],
)
def test_weight_only_dense_layers(capability: int, kernel: str) -> None:
    assert name(asked("0.33.0", capability, "nvfp4_linear", True)) == kernel


@pytest.mark.parametrize(
    ("capability", "kernel"), [(90, "MARLIN"), (100, "FLASHINFER_CUTLASS"), (120, "FLASHINFER_CUTLASS")]
)
def test_the_oldest_versions_dense_layers(capability: int, kernel: str) -> None:
    assert name(asked("0.19.0", capability, "earlier_nvfp4_linear")) == kernel


ATTENTION = [(80, "FlashAttention"), (90, "FlashAttention"), (100, "FlashInfer"), (103, "FlashInfer")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("capability", "backend"), [*ATTENTION, (120, "FlashAttention")])
def test_attention(version: str, capability: int, backend: str) -> None:
    values = {"head_size": 256, "kv_cache_dtype": "auto", "block_size": None}
    assert name(asked(version, capability, "attention", "", values, 8)).endswith(f".{backend}Backend")


def test_fp8_keys_and_values_move_sm120_to_flashinfer() -> None:
    values = {"head_size": 256, "kv_cache_dtype": "fp8", "block_size": None}
    assert name(asked("0.33.0", 120, "attention", "", values, 8)).endswith(".FlashInferBackend")


PREFILL = [
    ("0.33.0", 80, "triton"),
    ("0.33.0", 90, "flashinfer"),
    ("0.33.0", 100, "flashinfer"),
    ("0.33.0", 120, "flashinfer"),
    ("0.26.0", 90, "flashinfer"),
    ("0.26.0", 100, "flashinfer"),
    ("0.26.0", 120, "triton"),
    ("0.19.0", 90, "flashinfer"),
    ("0.19.0", 100, "triton"),
]


@pytest.mark.parametrize(("version", "capability", "backend"), PREFILL)
def test_gated_delta_net_prefill(version: str, capability: int, backend: str) -> None:
    question = "earlier_gated_delta_prefill" if version == "0.19.0" else "gated_delta_prefill"
    assert name(asked(version, capability, question, HEADS, "")) == backend


@pytest.mark.parametrize(
    ("version", "mode", "states"),
    [
        ("0.19.0", "none", 4),
        ("0.19.0", "align", 5),
        ("0.26.0", "align", 5),
        ("0.33.0", "none", 4),
        ("0.33.0", "align", 5),
    ],
)
def test_states_of_one_request_with_three_drafts(version: str, mode: str, states: int) -> None:
    assert name(asked(version, 90, "state_blocks", mode, 3, 0)) == str(states)


@pytest.mark.parametrize(("version", "is_on"), [("0.19.0", False), ("0.26.0", True), ("0.33.0", True)])
def test_prefix_caching_of_hybrid_models_by_default(version: str, is_on: bool) -> None:
    assert name(asked(version, 90, "prefix_caching_by_default")) == str(is_on)
