"""What is known about vLLM's speculative configuration is established from each version's own source."""

from __future__ import annotations

import pytest

from draftproof.stacks.vllm.environment_variables import known_variables
from draftproof.stacks.vllm.launch.loading_guard import guard
from draftproof.stacks.vllm.launch.options import SpeculativeKeys, speculative_keys
from draftproof.stacks.vllm.launch.request_limits import admission_change, refused_parameters
from draftproof.stacks.vllm.launch.special_keys import trims_on_device
from tests.support.real_stacks import real_stack
from tests.support.vllm_launch import VERSIONS, judged

START = "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4"


def keys(version: str) -> SpeculativeKeys:
    found = speculative_keys(real_stack("vllm", version).tree).value
    assert found is not None
    return found


DEFAULTS = [
    # key, default in 0.19.0, 0.26.0, 0.33.0; None where the version does not have it
    ("method", "None", "None", "None"),
    ("num_speculative_tokens", "None", "None", "None"),
    ("draft_tensor_parallel_size", "None", "None", "None"),
    ("moe_backend", "None", "None", "None"),
    ("attention_backend", None, "None", "None"),
    ("kv_cache_dtype", None, "None", "None"),
    ("draft_sample_method", None, "'greedy'", "'greedy'"),
    ("rejection_sample_method", "'strict'", "'standard'", "'standard'"),
    ("synthetic_acceptance_length", None, "None", "None"),
    ("num_speculative_tokens_per_batch_size", None, "None", "None"),
    ("enable_adaptive_verification", None, None, "False"),
    ("draft_lm_head_quantization", None, None, "None"),
    ("fly_window_size", None, None, "None"),
    ("speculative_token_tree", "None", None, None),
]


@pytest.mark.parametrize(("key", "defaults"), [(row[0], row[1:]) for row in DEFAULTS])
def test_keys_and_their_defaults(key: str, defaults: tuple[str | None, ...]) -> None:
    for version, default in zip(VERSIONS, defaults, strict=True):
        field = keys(version).get(key)
        assert (None if field is None else field.default) == default, version


@pytest.mark.parametrize("version", VERSIONS)
def test_mtp_is_a_method_and_nextn_is_none(version: str) -> None:
    names = keys(version).methods
    assert "mtp" in names
    assert "nextn" not in names
    assert "qwen3_5_mtp" in keys(version).head_names


@pytest.mark.parametrize(
    ("version", "ways"),
    [
        ("0.19.0", ("strict", "probabilistic", "synthetic")),
        ("0.26.0", ("standard", "synthetic", "block")),
        ("0.33.0", ("standard", "synthetic", "block", "fly")),
    ],
)
def test_ways_to_accept(version: str, ways: tuple[str, ...]) -> None:
    field = keys(version).get("rejection_sample_method")
    assert field is not None
    assert field.type.choices == ways


def test_the_newest_version_has_27_older_names_of_mtp() -> None:
    assert len(keys("0.33.0").head_names) == 28


@pytest.mark.parametrize("version", VERSIONS)
def test_min_p_and_logit_bias_are_refused(version: str) -> None:
    refused = refused_parameters(real_stack("vllm", version).tree)
    assert set(refused.value or ()) == {"min_p", "logit_bias"}


def test_admission_changes() -> None:
    for version, words in (
        ("0.19.0", "max_num_batched_tokens - scheduled_token_delta"),
        ("0.26.0", "max_num_batched_tokens - scheduled_token_delta"),
        ("0.33.0", "max_num_batched_tokens"),
    ):
        assert admission_change(real_stack("vllm", version).tree).value == words


def test_the_loading_guard() -> None:
    assert [guard(real_stack("vllm", version).tree).is_found for version in VERSIONS] == [False, True, True]


def test_gated_delta_net_does_not_trim_on_the_device() -> None:
    reading = trims_on_device(real_stack("vllm", "0.33.0").tree)
    assert reading.understood
    assert reading.value is False


@pytest.mark.parametrize(
    ("version", "there", "not_there"),
    [
        ("0.19.0", "VLLM_NVFP4_GEMM_BACKEND", "VLLM_GDN_DECODE_KERNEL"),
        ("0.33.0", "VLLM_GDN_DECODE_KERNEL", "VLLM_NVFP4_GEMM_BACKEND"),
    ],
)
def test_variables(version: str, there: str, not_there: str) -> None:
    known = known_variables(real_stack("vllm", version).tree).value or {}
    assert there in known
    assert not_there not in known


def test_more_drafts_than_layers_are_a_warning() -> None:
    text = """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
    for version in VERSIONS:
        changed = judged(version, f"{START} {text}").resolved.changed
        assert any("same MTP layer" in reading.sentence for reading in changed), version


def test_draft_rank_count_may_be_one() -> None:
    text = """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3, \
"draft_tensor_parallel_size": 1}'"""
    for version in VERSIONS:
        assert judged(version, f"{START} -tp 8 {text}").resolved.algorithm.value == "mtp", version
