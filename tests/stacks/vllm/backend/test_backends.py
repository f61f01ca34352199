"""The kernels that each version chooses on each GPU, for the checkpoints that people serve."""

from __future__ import annotations

import pytest

from draftproof.stacks.backend_facts import BackendFacts, Operation
from draftproof.stacks.overlay import OverlaidTree
from tests.support.real_stacks import real_stack
from tests.support.vllm_launch import HEADLINE, beside, kernel, kernels, situation, with_tree

SM90, SM100, SM120 = "h200", "b200", "rtx-pro-6000"
DENSE_NVFP4 = "nvidia_Qwen3.6-27B-NVFP4"


def chosen(facts: BackendFacts, group: str) -> str:
    choice = kernel(facts, group)
    assert choice.backend.understood, choice.backend.sentence
    assert choice.valid.value is True
    assert choice.backend.places
    assert choice.valid.places
    return choice.backend.value or ""


EXPERTS = [
    ("0.33.0", SM90, "HUMMING (HummingIndexedExperts)"),
    ("0.33.0", SM100, "FLASHINFER_TRTLLM (TrtLlmNvFp4ExpertsMonolithic)"),
    ("0.33.0", SM120, "FLASHINFER_CUTLASS (FlashInferExperts)"),
    ("0.26.0", SM120, "FLASHINFER_CUTLASS (FlashInferExperts)"),
    ("0.19.0", SM90, "MARLIN (MarlinExperts)"),
]


@pytest.mark.parametrize(("version", "gpu", "backend"), EXPERTS)
def test_every_group_has_a_kernel_with_its_selector_and_its_gate(
    version: str, gpu: str, backend: str
) -> None:
    facts = kernels(version, HEADLINE, situation(gpu, 8))

    assert chosen(facts, "routed experts") == backend
    assert kernel(facts, "MTP experts").precision == "BF16"
    for choice in facts.choices:
        assert chosen(facts, choice.group)
    assert {choice.operation for choice in facts.choices} == set(Operation)


@pytest.mark.parametrize(("gpu", "is_native"), [(SM90, False), (SM100, True), (SM120, True)])
def test_four_bits_are_multiplied_as_they_are_where_the_gpu_can(gpu: str, is_native: bool) -> None:
    choice = kernel(kernels("0.33.0", HEADLINE, situation(gpu, 8)), "routed experts")
    assert choice.native is is_native


def test_what_is_taken_without_flashinfer_is_said() -> None:
    choice = kernel(kernels("0.33.0", HEADLINE, situation(SM120, 8)), "routed experts")

    assert "without FlashInfer VLLM_CUTLASS (CutlassExpertsFp4)" in choice.backend.sentence
    assert {need.name for need in choice.needs} == {"flashinfer-python", "nvcc and ninja"}


def test_a_dense_checkpoint_has_no_experts() -> None:
    facts = kernels("0.33.0", DENSE_NVFP4, situation(SM120, 1))

    assert chosen(facts, "MLP") == "FlashInferCutlassNvFp4LinearKernel"
    assert not [choice for choice in facts.choices if choice.operation is Operation.EXPERT_GEMM]


def test_prefill_without_flashinfer_is_invalid_and_has_a_way_out() -> None:
    stack = beside("0.33.0", "humming-kernels 0.1.19")
    text = (
        "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 8 "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
    )
    facts = kernels("0.33.0", HEADLINE, situation(SM90, 8), text, stack)
    choice = kernel(facts, "prefill")

    assert choice.valid.value is False
    assert choice.explicit == "--gdn-prefill-backend triton"
    hit = {
        finding.defect.identifier for finding in facts.defects if finding.applies and finding.present.value
    }
    assert "vllm-prefill-kernel-not-looked-for" in hit


@pytest.mark.parametrize(
    ("release", "verify"),
    [(HEADLINE, "fused_gdn"), ("Qwen_Qwen3-Next-80B-A3B-Instruct", "Triton fused_recurrent")],
)
def test_the_fused_verify_kernel_is_not_for_the_interleaved_layout(release: str, verify: str) -> None:
    assert chosen(kernels("0.33.0", release, situation(SM90, 4)), "verify").startswith(verify)


@pytest.mark.parametrize("version", ["0.19.0", "0.26.0"])
def test_earlier_versions_verify_in_triton(version: str) -> None:
    assert chosen(kernels(version, HEADLINE, situation(SM90, 8)), "verify").startswith("Triton")


def test_a_changed_order_changes_the_choice() -> None:
    file = "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py"
    tree = real_stack("vllm", "0.33.0").tree
    line = "        NvFp4MoeBackend.FLASHINFER_CUTLASS,\n        NvFp4MoeBackend.VLLM_CUTLASS,\n"
    assert line in tree.text(file)
    swapped = tree.text(file).replace(
        line, "        NvFp4MoeBackend.VLLM_CUTLASS,\n        NvFp4MoeBackend.FLASHINFER_CUTLASS,\n"
    )
    stack = with_tree("0.33.0", OverlaidTree(tree, {file: swapped}))
    facts = kernels("0.33.0", HEADLINE, situation(SM120, 8), stack=stack)
    assert chosen(facts, "routed experts") == "VLLM_CUTLASS (CutlassExpertsFp4)"


def test_a_selector_in_another_form_is_open() -> None:
    file = "vllm/model_executor/layers/fused_moe/oracle/nvfp4.py"
    tree = real_stack("vllm", "0.33.0").tree
    renamed = tree.text(file).replace("def select_nvfp4_moe_backend", "def pick_backend")
    stack = with_tree("0.33.0", OverlaidTree(tree, {file: renamed}))
    choice = kernel(kernels("0.33.0", HEADLINE, situation(SM120, 8), stack=stack), "routed experts")

    assert not choice.backend.understood
    assert choice.valid.value is None
    assert "nvfp4 experts" in choice.backend.sentence


STATE = (
    # version, ranks, states without drafts, further ones for K = 3, tokens of a block
    ("0.33.0", 4, 3, 3, 1088),
    ("0.33.0", 8, 3, 3, 576),
    ("0.26.0", 8, 2, 3, 544),
    ("0.19.0", 8, 1, 3, 544),
)


@pytest.mark.parametrize(("version", "ranks", "committed", "drafts", "block"), STATE)
def test_states_that_one_sequence_keeps(
    version: str, ranks: int, committed: int, drafts: int, block: int
) -> None:
    layout = kernels(version, HEADLINE, situation(SM90, ranks)).state_layout.value

    assert layout is not None
    assert (layout.committed_copies, layout.draft_copies) == (committed, drafts)
    assert layout.state_bytes == 4
    assert layout.extra_convolution_columns == 3
    assert layout.block_tokens == block


def test_without_prefix_caching_one_state_and_k_more() -> None:
    text = (
        "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 8 --no-enable-prefix-caching "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'"""
    )
    layout = kernels("0.33.0", HEADLINE, situation(SM90, 8), text).state_layout.value
    assert layout is not None
    assert (layout.committed_copies, layout.draft_copies) == (1, 2)


def test_a_variable_that_the_command_sets_decides() -> None:
    text = (
        "VLLM_GDN_DECODE_KERNEL=triton vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 8 "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
    )
    choice = kernel(kernels("0.33.0", HEADLINE, situation(SM90, 8), text), "verify")
    assert choice.backend.value == "Triton fused_recurrent_gated_delta_rule"
    assert "asked for" in choice.backend.sentence
