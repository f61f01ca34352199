"""The engine that the options of `serve` ask for: spellings of vLLM and SGLang, and what contradicts what."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.cli.server_engine import EngineOptions, engine_config
from draftproof.engine.config import DrafterName, DraftPolicy
from draftproof.errors import UsageError


def test_without_options_three_drafts_and_four_kept_prompts_a_sequence() -> None:
    config = engine_config(EngineOptions())
    assert (config.drafter, config.draft_tokens, config.draft_policy) == (
        DrafterName.NEXTN,
        3,
        DraftPolicy.ADAPTIVE,
    )
    assert (config.max_sequences, config.prefix_snapshots) == (8, 32)
    assert engine_config(EngineOptions(max_sequences=2)).prefix_snapshots == 8
    assert engine_config(EngineOptions(prefix_snapshots=5)).prefix_snapshots == 5


def test_no_drafts_is_no_drafter() -> None:
    assert engine_config(EngineOptions(draft_tokens=0)).drafter is DrafterName.NONE


@pytest.mark.parametrize(
    ("given", "draft_tokens"),
    [
        ({"method": "mtp", "num_speculative_tokens": 2}, 2),
        ({"method": "qwen3_5_mtp", "num_speculative_tokens": 1}, 1),
        ({"num_speculative_tokens": 4}, 4),
        ({"method": "mtp"}, 3),
        ({}, 3),
    ],
)
def test_vllms_object_names_the_head_and_k(given: dict[str, object], draft_tokens: int) -> None:
    config = engine_config(EngineOptions(speculative_config=given))
    assert (config.drafter, config.draft_tokens) == (DrafterName.NEXTN, draft_tokens)


def test_vllms_object_may_leave_k_to_k() -> None:
    assert (
        engine_config(EngineOptions(speculative_config={"method": "mtp"}, draft_tokens=2)).draft_tokens == 2
    )


@pytest.mark.parametrize("draft_tokens", [0, 1, 3])
def test_sglangs_count_is_one_more_than_k(draft_tokens: int) -> None:
    options = EngineOptions(draft_tokens=draft_tokens, window_tokens=draft_tokens + 1, drafts_per_position=1)
    assert engine_config(options).draft_tokens == draft_tokens


@pytest.mark.parametrize(
    "fields",
    [{"drops_prefixes": True}, {"keeps_prefixes": False}, {"drops_prefixes": True, "prefix_snapshots": 0}],
)
def test_words_for_keeping_no_prompts(fields: dict[str, Any]) -> None:
    assert engine_config(EngineOptions(**fields)).prefix_snapshots == 0


@pytest.mark.parametrize("fields", [{"keeps_prefixes": True}, {"drops_prefixes": False}])
def test_words_for_keeping_prompts_change_nothing(fields: dict[str, Any]) -> None:
    assert engine_config(EngineOptions(**fields)) == engine_config(EngineOptions())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"speculative_config": {"method": "eagle3"}}, r"'eagle3'.*own MTP head.*\"mtp\""),
        ({"speculative_config": {"method": 3}}, "method 3"),
        (
            {"speculative_config": {"rejection_sample_method": "synthetic"}},
            "'rejection_sample_method'.*It takes",
        ),
        ({"speculative_config": {"num_speculative_tokens": 0}}, "'num_speculative_tokens'.* is 0.*--k 0"),
        ({"speculative_config": {"num_speculative_tokens": True}}, "is True"),
        ({"speculative_config": {"num_speculative_tokens": 2.0}}, "is 2.0"),
        ({"speculative_config": {"num_speculative_tokens": 99}}, "from 1 to 16, not 99"),
        (
            {"speculative_config": {"num_speculative_tokens": 3}, "draft_tokens": 2},
            "3 drafts a pass and --k for 2",
        ),
        ({"speculative_config": {}, "drafter": DrafterName.NONE}, "--drafter none for none"),
        ({"window_tokens": 3}, "counts 2 drafts.*K is 3.*--speculative-num-draft-tokens 4 or --k 2"),
        ({"drafts_per_position": 4}, "tree of drafts.*say 1"),
        ({"keeps_prefixes": True, "drops_prefixes": True}, "both given"),
        ({"drops_prefixes": True, "prefix_snapshots": 3}, "--prefix-snapshots 3 disagree"),
        ({"keeps_prefixes": True, "prefix_snapshots": 0}, "--prefix-snapshots 0 disagree"),
        ({"memory_share": 0.9}, "the device is cpu"),
    ],
)
def test_what_contradicts_is_refused_with_the_remedy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine_config(EngineOptions(**fields))
