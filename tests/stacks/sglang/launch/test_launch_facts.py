"""What people read in SGLang's sources about launching, found again by our own queries.

Each statement is one that the versions were seen to make true. What no query can establish is listed in
docs/facts-out-of-reach.md.
"""

from __future__ import annotations

import pytest

from draftproof.stacks.launch_facts import ResolvedLaunch, Ruling, ValueKind
from draftproof.stacks.sglang.launch.hybrid_attention import allowed_on_blackwell
from draftproof.stacks.sglang.launch.in_force import in_force
from draftproof.stacks.sglang.launch.options import ArgumentTable, read_arguments
from draftproof.stacks.sglang.launch.resolved_speculation import path_fallback
from tests.support.sglang_launch import (
    START,
    TRIPLE,
    VERSIONS,
    findings,
    judged,
    ruled,
    situation,
    strategy_option,
    tree_of,
)

NEXTN = "--tp 8 --speculative-algorithm NEXTN"
QWEN_BF16 = "Qwen_Qwen3.5-397B-A17B"


def arguments(version: str) -> ArgumentTable:
    table = read_arguments(tree_of(version)).value
    assert table is not None
    return table


def resolved(version: str, words: str, key: str = "h200", release: str = QWEN_BF16) -> ResolvedLaunch:
    return judged(version, f"{START} {words}", situation(key), release).resolved


def value(version: str, words: str, field: str, key: str = "h200", release: str = QWEN_BF16) -> object:
    return in_force(resolved(version, words, key, release)).values[field]


DEFAULTS = (
    ("--speculative-algorithm", ValueKind.STRING, "None"),
    ("--speculative-draft-model-path", ValueKind.STRING, "None"),
    ("--speculative-num-steps", ValueKind.INTEGER, "None"),
    ("--speculative-eagle-topk", ValueKind.INTEGER, "None"),
    ("--speculative-num-draft-tokens", ValueKind.INTEGER, "None"),
    ("--speculative-accept-threshold-single", ValueKind.NUMBER, "1.0"),
    ("--speculative-accept-threshold-acc", ValueKind.NUMBER, "1.0"),
    ("--speculative-use-rejection-sampling", ValueKind.FLAG, "False"),
    ("--speculative-attention-mode", ValueKind.STRING, "'prefill'"),
    ("--speculative-draft-window-size", ValueKind.INTEGER, "None"),
    ("--enable-multi-layer-eagle", ValueKind.FLAG, "False"),
    ("--speculative-adaptive", ValueKind.FLAG, "False"),
    ("--speculative-adaptive-config", ValueKind.STRING, "None"),
    ("--speculative-domino-candidate-pool-size", ValueKind.INTEGER, "2048"),
    ("--speculative-ngram-min-bfs-breadth", ValueKind.INTEGER, "1"),
    ("--speculative-ngram-max-bfs-breadth", ValueKind.INTEGER, "10"),
    ("--speculative-ngram-max-trie-depth", ValueKind.INTEGER, "18"),
    ("--mamba-track-interval", ValueKind.INTEGER, "256"),
    ("--linear-replayssm-cache-len", ValueKind.INTEGER, "16"),
)


@pytest.mark.parametrize(("name", "kind", "default"), DEFAULTS)
def test_declared_fields_of_the_newest_version(name: str, kind: ValueKind, default: str) -> None:
    declared = arguments("0.5.23").declaration(name)
    assert declared is not None
    assert (declared.option.kind, declared.option.default) == (kind, default)
    assert declared.option.place.file.startswith("sglang/srt/arg_groups/fields/")


def test_aliases_and_choices() -> None:
    table = arguments("0.5.23")
    path = table.declaration("--speculative-draft-model")
    assert path is not None
    assert path.option.name == "--speculative-draft-model-path"
    strategy = table.declaration("--mamba-radix-cache-strategy")
    assert strategy is not None
    assert strategy.option.choices == ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
    match = table.declaration("--speculative-ngram-match-type")
    assert match is not None
    assert match.option.choices == ("BFS", "PROB")
    kinds = table.declaration("--speculative-draft-kv-cache-dtype")
    assert kinds is not None
    assert kinds.option.choices == ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16")


@pytest.mark.parametrize("version", VERSIONS)
def test_nextn_is_eagle(version: str) -> None:
    assert resolved(version, f"{NEXTN} {strategy_option(version)} extra_buffer").algorithm.value == "EAGLE"


def test_mtp_is_no_algorithm() -> None:
    broken = ruled(judged("0.5.23", f"{START} --tp 8 --speculative-algorithm MTP"), Ruling.BREAKS)
    assert any("Unknown speculative algorithm name: MTP" in entry.observed for entry in broken)


@pytest.mark.parametrize("version", VERSIONS)
def test_three_steps_one_branch_four_rows_where_nothing_is_given(version: str) -> None:
    words = f"{NEXTN} {strategy_option(version)} extra_buffer"
    assert resolved(version, words).draft_tokens.value == 3
    assert value(version, words, "speculative_eagle_topk") == 1
    assert value(version, words, "speculative_num_draft_tokens") == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_of_the_three_ends_in_an_error_that_names_no_option(version: str) -> None:
    cache = f"{strategy_option(version)} extra_buffer"
    (steps,) = findings(judged(version, f"{START} {NEXTN} {cache} --speculative-num-steps 3"), "starts")
    assert "TypeError: '>' not supported between instances of 'NoneType' and 'int'" in steps.observed
    (branches,) = findings(judged(version, f"{START} {NEXTN} {cache} --speculative-eagle-topk 1"), "starts")
    assert "AssertionError without a word" in branches.observed


@pytest.mark.parametrize("version", VERSIONS)
def test_draft_tokens_follow_the_steps(version: str) -> None:
    words = f"{NEXTN} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 9"
    words = f"{words} {strategy_option(version)} extra_buffer"
    assert value(version, words, "speculative_num_draft_tokens") == 4
    assert any(
        "draft tokens become 4, where 9 was given" in c.sentence for c in resolved(version, words).changed
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_speculation_limits_the_requests_to_48(version: str) -> None:
    words = f"{NEXTN} {TRIPLE} {strategy_option(version)} extra_buffer"
    assert value(version, words, "max_running_requests") == 48
    assert value(version, f"{words} --max-running-requests 100", "max_running_requests") == 100


@pytest.mark.parametrize(("version", "line"), [("0.5.9", 251), ("0.5.12", 391), ("0.5.23", 956)])
def test_a_draft_without_a_path_is_the_target(version: str, line: int) -> None:
    reading = path_fallback(tree_of(version))
    assert reading.is_found
    assert reading.places[0].line == line


def test_some_architectures_get_their_path_set_and_others_fall_back() -> None:
    listed = resolved("0.5.23", NEXTN, release="zai-org_GLM-4.5-Air").draft_path
    assert listed.places[0].file == "sglang/srt/arg_groups/speculative_hook.py"
    assert "the target itself" in listed.sentence
    assert "falls back" in resolved("0.5.23", NEXTN).draft_path.sentence


def test_more_branches_than_one_with_trtllm_mha_are_refused() -> None:
    words = (
        f"{NEXTN} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8 "
        "--attention-backend trtllm_mha --page-size 64"
    )
    (start,) = findings(judged("0.5.23", f"{START} {words}", situation("b200"), QWEN_BF16), "starts")
    assert "trtllm_mha backend only supports topk = 1" in start.observed


def test_overlap_is_on_under_speculation_only_in_newer_versions() -> None:
    assert value("0.5.9", f"{NEXTN} {TRIPLE}", "disable_overlap_schedule") is True
    assert value("0.5.23", f"{NEXTN} {TRIPLE}", "disable_overlap_schedule") is False


def test_the_state_cache_that_hybrid_models_fall_back_to_costs_the_overlap() -> None:
    assert value("0.5.23", f"{NEXTN} {TRIPLE}", "mamba_radix_cache_strategy") == "extra_buffer"
    words = f"{NEXTN} {TRIPLE} --linear-attn-backend cutedsl"
    assert value("0.5.23", words, "mamba_radix_cache_strategy") == "no_buffer"
    changed = resolved("0.5.23", words).changed
    assert any("overlap schedule is switched off (without a word in the log)" in c.sentence for c in changed)
    (start,) = findings(judged("0.5.23", f"{START} {words}", situation("b200"), QWEN_BF16), "starts")
    assert "no_buffer only supports page_size=1" in start.observed
    off = f"{NEXTN} {TRIPLE} --disable-overlap-schedule"
    assert value("0.5.23", off, "mamba_radix_cache_strategy") == "no_buffer"
    without = f"{NEXTN} {TRIPLE} --disable-radix-cache"
    assert value("0.5.23", without, "mamba_radix_cache_strategy") == "auto"
    assert value("0.5.23", without, "disable_overlap_schedule") is False


def test_more_draft_tokens_than_the_track_interval_end_without_a_word() -> None:
    words = (
        f"{NEXTN} --speculative-num-steps 300 --speculative-eagle-topk 1 --speculative-num-draft-tokens 301"
    )
    (start,) = findings(judged("0.5.23", f"{START} {words}", situation("h200"), QWEN_BF16), "starts")
    assert "AssertionError without a word" in start.observed
    assert start.places[0].file == "sglang/srt/arg_groups/mamba_hook.py"


def test_several_layers_are_used_for_eagle_and_not_for_nextn() -> None:
    release = "XiaomiMiMo_MiMo-V2.6-Flash-RL"
    words = f"--tp 4 --speculative-algorithm {{}} {TRIPLE}"
    where = situation("h200", 4)
    for name, uses_all in (("EAGLE", True), ("NEXTN", False)):
        judgement = judged("0.5.23", f"{START} {words.format(name)}", where, release)
        assert in_force(judgement.resolved).values["enable_multi_layer_eagle"] is uses_all


def test_adaptive_speculation_starts_in_the_middle_of_its_steps() -> None:
    words = f"{NEXTN} --speculative-adaptive"
    assert value("0.5.23", words, "speculative_num_steps") == 3
    assert value("0.5.23", words, "speculative_num_draft_tokens") == 4


def test_an_explicit_unquant_for_the_draft_is_lost() -> None:
    words = f"{NEXTN} {TRIPLE} --speculative-draft-model-quantization unquant"
    release = "nvidia_Qwen3.5-397B-A17B-NVFP4"
    assert value("0.5.23", words, "speculative_draft_model_quantization", release=release) is None


RESOLVER = (
    # options, GPU, attention backend, page size, expert kernels
    ("", "h200", "fa3", 1, "auto"),
    ("", "b200", "triton", 1, "flashinfer_trtllm"),
    ("", "rtx-pro-6000", "flashinfer", 1, "auto"),
    ("--speculative-algorithm NEXTN", "h200", "fa3", 1, "auto"),
    ("--speculative-algorithm NEXTN", "b200", "triton", 1, "flashinfer_trtllm"),
    ("--speculative-algorithm NEXTN", "rtx-pro-6000", "flashinfer", 1, "auto"),
    (f"--speculative-algorithm NEXTN {TRIPLE}", "b200", "trtllm_mha", 64, "flashinfer_trtllm"),
    (f"--speculative-algorithm NEXTN {TRIPLE}", "h200", "fa3", 1, "auto"),
    ("--speculative-algorithm NEXTN --quantization modelopt_fp4", "rtx-pro-6000", "flashinfer", 1,
     "flashinfer_cutlass"),
)  # fmt: skip


@pytest.mark.parametrize(("words", "key", "attention", "page", "experts"), RESOLVER)
def test_what_the_resolver_was_seen_to_choose(
    words: str, key: str, attention: str, page: int, experts: str
) -> None:
    release = "nvidia_Qwen3.5-397B-A17B-NVFP4"
    values = in_force(resolved("0.5.23", f"--tp 8 {words}", key, release)).values
    assert (values["attention_backend"], values["page_size"], values["moe_runner_backend"]) == (
        attention,
        page,
        experts,
    )


@pytest.mark.parametrize(
    ("version", "capability", "names"),
    [
        ("0.5.9", 120, {"triton", "trtllm_mha"}),
        ("0.5.12", 120, {"triton", "trtllm_mha", "fa4", "flashinfer"}),
        ("0.5.23", 100, {"triton", "trtllm_mha", "fa4", "flashinfer"}),
        ("0.5.23", 120, {"triton", "trtllm_mha", "flashinfer"}),
    ],
)
def test_attention_backends_of_hybrid_models_on_blackwell(
    version: str, capability: int, names: set[str]
) -> None:
    assert set(allowed_on_blackwell(tree_of(version), capability).value or ()) == names
