"""Engine configs: what they refuse, and how they say it."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.engine.config import MAX_DRAFT_TOKENS, ComputeType, DrafterName, DraftPolicy, EngineConfig
from draftproof.errors import UsageError


@pytest.mark.parametrize("draft_tokens", [0, -1, MAX_DRAFT_TOKENS + 1, 10**9])
def test_k_is_at_least_one_and_has_a_limit(draft_tokens: int) -> None:
    with pytest.raises(
        UsageError, match=f"must be from 1 to {MAX_DRAFT_TOKENS}, not {draft_tokens}.*drafter 'none'"
    ):
        EngineConfig(draft_tokens=draft_tokens)


@pytest.mark.parametrize("field", ["max_sequences", "page_size", "prompt_chunk", "max_length"])
@pytest.mark.parametrize("value", [0, -3])
def test_sizes_are_positive(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{field} must be at least . ?not {value}".replace(" ?", ", ")):
        EngineConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("prefix_snapshots", -1), ("max_total_tokens", 0)])
def test_shared_state_has_a_size(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{field} must be .*, not {value}"):
        EngineConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("draft_tokens", [1, 3, MAX_DRAFT_TOKENS])
def test_a_window_is_the_last_token_and_the_drafts(draft_tokens: int) -> None:
    assert EngineConfig(draft_tokens=draft_tokens).window_rows == draft_tokens + 1


def test_without_a_drafter_there_are_no_drafts() -> None:
    assert EngineConfig(drafter=DrafterName.NONE, draft_tokens=0).window_rows == 1
    assert EngineConfig(drafter=DrafterName.NONE, draft_tokens=5).window_rows == 1


def test_a_gpu_has_its_own_compute_type_and_limits() -> None:
    assert EngineConfig().activations is ComputeType.FLOAT32
    assert EngineConfig(device="cuda:1").activations is ComputeType.BFLOAT16
    for fields, message in (
        ({"compute_type": ComputeType.FLOAT32}, "bfloat16, not in float32.*--dtype out"),
        ({"draft_tokens": 8}, "at most 7, not 8.*--k"),
        ({"max_sequences": 65}, "at most 64, not 65"),
    ):
        with pytest.raises(UsageError, match=message):
            EngineConfig(device="cuda", **fields)  # type: ignore[arg-type]
        EngineConfig(**fields)  # type: ignore[arg-type]


def test_a_draft_vocabulary_is_for_gpus() -> None:
    assert EngineConfig(device="cuda", draft_vocabulary="1000").draft_vocabulary == "1000"
    with pytest.raises(UsageError, match="draft vocabulary makes drafts cheaper on a GPU"):
        EngineConfig(draft_vocabulary="1000")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "--device cuda"),
        ({"device": "cuda", "draft_policy": DraftPolicy.ADAPTIVE}, "--draft-policy fixed"),
        ({"device": "cuda", "draft_tokens": 1}, "2.5: a verify pass of this engine gives from 1 to 2"),
    ],
)
def test_acceptance_is_simulated_where_it_can_be(fields: dict[str, Any], message: str) -> None:
    assert EngineConfig(device="cuda", simulated_accept_length=2.5).simulated_drafts == 1500
    with pytest.raises(UsageError, match=message):
        EngineConfig(simulated_accept_length=2.5, **fields)


def test_a_share_of_memory_is_for_gpus_and_a_share() -> None:
    assert EngineConfig(device="cuda", memory_share=0.9).memory_share == 0.9
    with pytest.raises(UsageError, match=r"of a GPU's memory, and the device is cpu.*--device cuda"):
        EngineConfig(memory_share=0.9)
    for share in (0.0, -0.5, 1.01, float("nan")):
        with pytest.raises(UsageError, match="above 0 and at most 1"):
            EngineConfig(device="cuda", memory_share=share)
