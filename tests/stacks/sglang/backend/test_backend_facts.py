"""What people found in SGLang 0.5.23 about kernels and recurrent states, found again by our queries.

Numbers in the comments are those of the checklist: 4 kernels, 5 states. The table of attention backends is in
test_resolver_table.py; what a static reading cannot establish is listed in docs/facts-out-of-reach.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.checkpoint.precision import Precision
from draftproof.hardware.sequence_cost import sequence_cost, state_copy_bytes
from draftproof.hardware.shape import shape_of
from draftproof.stacks.backend_facts import KernelChoice, Phase
from draftproof.stacks.module_groups import ModuleGroup
from draftproof.stacks.sglang.backend.attention_kernels import AttentionQuestion, hybrid_refusal
from draftproof.stacks.sglang.backend.delta_net import dispatcher_answer
from draftproof.stacks.sglang.backend.dense_kernels import dense_choice
from draftproof.stacks.sglang.backend.expert_kernels import expert_choice
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.backend.state_copies import intermediate_states
from draftproof.stacks.sglang.launch.in_force import ValuesInForce
from tests.support.sglang_kernels import EXPLICIT, HEADLINE, SM, asked, checkpoint_named, resolved, selectors
from tests.support.sglang_launch import gpu, tree_of

LATEST = "0.5.23"
MIB = 1 << 20
PACKED, BLOCKS, PLAIN = Precision.NVFP4_MODELOPT, Precision.FP8_BLOCK, Precision.BF16
AUTO: dict[str, Any] = {
    "bf16_gemm_backend": "auto",
    "deepep_mode": "auto",
    "enable_deterministic_inference": False,
    "fp4_gemm_runner_backend": "auto",
    "fp8_gemm_runner_backend": "auto",
    "linear_attn_backend": "triton",
    "linear_attn_decode_backend": None,
    "linear_attn_prefill_backend": None,
    "linear_attn_verify_backend": None,
    "moe_a2a_backend": "none",
    "moe_runner_backend": "auto",
    "speculative_eagle_topk": 1,
}


def on(capability: int, version: str = LATEST, **fields: Any) -> Selectors:
    return selectors(version).elsewhere(gpu(SM[capability]), ValuesInForce({**AUTO, **fields}, {}))


def dense(capability: int, precision: Precision, version: str = LATEST, **fields: Any) -> KernelChoice:
    return dense_choice(on(capability, version, **fields), ModuleGroup("x", precision, False, False, False))


def experts(capability: int, precision: Precision, version: str = LATEST, **fields: Any) -> KernelChoice:
    return expert_choice(on(capability, version, **fields), ModuleGroup("x", precision, True, False, False))


# 4.2 Matrices and experts.


@pytest.mark.parametrize(
    ("capability", "packed", "blocks", "plain"),
    [
        (90, "marlin", "deepgemm", "cuBLAS"),
        (100, "flashinfer_cutedsl", "deepgemm", "cutedsl"),
        (103, "flashinfer_cutedsl", "deepgemm", "cutedsl"),
        (120, "flashinfer_cutlass", "cutlass", "cuBLAS"),
    ],
)
def test_dense_layers_without_an_option(capability: int, packed: str, blocks: str, plain: str) -> None:
    seen = [dense(capability, precision) for precision in (PACKED, BLOCKS, PLAIN)]
    assert [choice.backend.value for choice in seen] == [packed, blocks, plain]
    assert all(choice.valid.value for choice in seen)
    assert seen[0].native is (capability >= 100)


@pytest.mark.parametrize(
    ("asked_for", "admitted"),
    [("flashinfer_trtllm", {100}), ("flashinfer_deepgemm", {90}), ("cutlass", {120})],
)
def test_backends_for_block_scales_that_some_gpus_are_refused(asked_for: str, admitted: set[int]) -> None:
    for capability in (90, 100, 120):
        choice = dense(capability, BLOCKS, fp8_gemm_runner_backend=asked_for)
        assert choice.valid.value is (capability in admitted), capability


@pytest.mark.parametrize(
    ("capability", "packed", "valid"),
    [
        (80, "marlin", True),
        (90, "marlin", True),
        (100, "flashinfer_trtllm", False),
        (120, "flashinfer_trtllm", False),
    ],
)
def test_packed_experts_without_a_runner(capability: int, packed: str, valid: bool) -> None:
    choice = experts(capability, PACKED)
    assert (choice.backend.value, choice.valid.value) == (packed, valid)


def test_packed_experts_on_sm100_are_laid_out_for_another_kernel() -> None:
    assert "laid out by moe_runner_backend auto" in experts(100, PACKED).valid.sentence
    assert experts(100, PACKED, moe_runner_backend="flashinfer_trtllm").valid.value is True


@pytest.mark.parametrize("capability", [90, 120])
def test_experts_in_fp8_and_bf16_run_on_triton(capability: int) -> None:
    assert experts(capability, BLOCKS).backend.value == "triton"
    assert experts(capability, PLAIN).backend.value == "triton"


def test_deepgemm_runs_experts_only_behind_its_own_all_to_all() -> None:
    assert experts(90, BLOCKS, moe_a2a_backend="deepep").backend.value == "deep_gemm"


def test_cutlass_is_refused_for_packed_experts() -> None:
    choice = experts(120, PACKED, moe_runner_backend="cutlass")
    assert choice.valid.value is False
    assert "not supported for NVFP4" in choice.valid.sentence


def test_trtllm_is_accepted_on_sm120_when_it_is_asked_for() -> None:
    resolution = resolved(LATEST, HEADLINE, 120, **EXPLICIT, moe_runner_backend="flashinfer_trtllm")
    assert resolution.is_complete
    choice = experts(120, PACKED, moe_runner_backend="flashinfer_trtllm")
    assert choice.backend.understood
    assert choice.valid.value is False


def test_native_packed_matrices_are_blackwells() -> None:
    choice = dense(90, PACKED, fp4_gemm_runner_backend="flashinfer_cutlass")
    assert choice.valid.value is False
    assert dense(90, PACKED, fp4_gemm_runner_backend="marlin").valid.value is True


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12"])
def test_older_versions_have_no_packed_weights_before_blackwell(version: str) -> None:
    assert dense(90, PACKED, version).valid.value is False
    assert experts(90, PACKED, version).valid.value is False


# 4.3 Attention.


@pytest.mark.parametrize(
    ("capability", "admitted"),
    [(100, {"triton", "trtllm_mha", "fa4", "flashinfer"}), (120, {"triton", "trtllm_mha", "flashinfer"})],
)
def test_backends_that_hybrid_models_may_have(capability: int, admitted: set[str]) -> None:
    question = AttentionQuestion(on(capability), False, True, "Qwen3_5MoeForConditionalGeneration", True)
    for name in ("triton", "trtllm_mha", "fa4", "flashinfer", "fa3"):
        refusal = hybrid_refusal(question, name)
        assert refusal is not None
        assert refusal.value is (name in admitted), name


# 4.4 Gated DeltaNet.

FLASHINFER, TRITON = "FlashInferGDNKernel", "TritonGDNKernel"


@pytest.mark.parametrize(("capability", "verify"), [(90, FLASHINFER), (100, FLASHINFER), (120, TRITON)])
def test_verify_follows_decode_where_there_is_a_kernel(capability: int, verify: str) -> None:
    names = dispatcher_answer(on(capability, linear_attn_decode_backend="flashinfer")).value
    assert names[1:3] == (FLASHINFER, verify)
    assert names[3] == TRITON, "a tree of drafts is always verified by Triton"


@pytest.mark.parametrize("name", ["helion", "flashkda"])
def test_backends_that_are_not_for_these_layers(name: str) -> None:
    assert dispatcher_answer(on(90, linear_attn_decode_backend=name)).raised is not None


@pytest.mark.parametrize(("capability", "prefill"), [(90, "flashinfer"), (100, "triton"), (120, "triton")])
def test_prefill_with_a_state_in_float32(capability: int, prefill: str) -> None:
    found = asked(LATEST, HEADLINE, capability, **EXPLICIT)
    assert found.kernel("Gated DeltaNet layers", Phase.PREFILL).backend.value == prefill


def test_a_state_in_bf16_gives_sm100_flashinfer_everywhere() -> None:
    options = {**EXPLICIT, "mamba_ssm_dtype": "bfloat16"}
    found = asked(LATEST, HEADLINE, 100, **options, chunked_prefill_size=8192)
    larger = asked(LATEST, HEADLINE, 100, **options, chunked_prefill_size=16384)
    assert larger.kernel("Gated DeltaNet layers", Phase.PREFILL).backend.value == "triton"
    for phase in (Phase.PREFILL, Phase.DECODE, Phase.VERIFY):
        assert found.kernel("Gated DeltaNet layers", phase).backend.value == "flashinfer"


def test_flashinfer_for_decode_wants_a_state_in_bf16_on_blackwell() -> None:
    resolution = resolved(LATEST, HEADLINE, 100, **EXPLICIT, linear_attn_decode_backend="flashinfer")
    assert resolution.raised is not None
    assert "requires --mamba-ssm-dtype bfloat16" in resolution.raised.message


# 5 States.


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.23"])
def test_a_verify_pass_leaves_a_state_for_each_token(version: str) -> None:
    assert intermediate_states(tree_of(version)).value is True


@pytest.mark.parametrize(
    ("kind", "layer", "snapshot", "rank", "whole"),
    [(None, 4.0, 183.0, 22.9, 205.6), ("bfloat16", 2.0, 93.0, 11.6, 104.0)],
)
def test_worked_numbers(kind: str | None, layer: float, snapshot: float, rank: float, whole: float) -> None:
    """The 397B checkpoint: MiB of a layer's state, of a copy on one GPU and on one of 8, of a request."""
    spec = checkpoint_named(HEADLINE).spec
    assert spec is not None
    shape = shape_of(spec)
    options = {} if kind is None else {"mamba_ssm_dtype": kind}
    layout = asked(LATEST, HEADLINE, 90, **EXPLICIT, **options).layout.value
    assert layout is not None
    assert shape.recurrent is not None
    assert shape.recurrent_layers == 45
    heads = shape.recurrent.num_value_heads * shape.recurrent.key_head_dim * shape.recurrent.value_head_dim
    assert heads * layout.state_bytes / MIB == layer
    copies = [45 * state_copy_bytes(shape, ranks, layout.state_bytes) / MIB for ranks in (1, 8)]
    assert copies == pytest.approx([snapshot, rank], rel=0.01)
    assert layout.copies == 9
    assert sequence_cost(shape, layout, 8).state / MIB == pytest.approx(whole, rel=0.01)


def test_48_requests_take_ten_gigabytes_of_each_gpu() -> None:
    spec = checkpoint_named(HEADLINE).spec
    found = asked(LATEST, HEADLINE, 120, **EXPLICIT)
    assert spec is not None
    assert found.layout.value is not None
    assert "at most 48 requests" in found.layout.sentence
    assert 48 * sequence_cost(shape_of(spec), found.layout.value, 8).state == pytest.approx(10.3e9, rel=0.02)
