"""Launch commands that a stack does not take, or that do not do what they say; and the right ones.

This file holds SGLang's wrong commands and the right ones of both stacks; vLLM's wrong ones stand in
tests/stacks/vllm/launch/test_launch_judge.py.
"""

from __future__ import annotations

import pytest

from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.stack import StackKind
from tests.support.sglang_launch import (
    START,
    TRIPLE,
    VERSIONS,
    findings,
    judged,
    planned,
    ruled,
    situation,
    strategy_option,
)

NEXTN = f"--tp 8 --speculative-algorithm NEXTN {TRIPLE}"
WORKS = "--speculative-num-steps 3 --speculative-eagle-topk 1"

WRONG = (
    # what is typed after the start, the check that breaks, what is seen, what is advised
    ("--tp 8", "algorithm-accepted", "asks for no algorithm", "NEXTN"),
    (f"--tp 8 --speculative-algorithm NGRAM {TRIPLE}", "algorithm-accepted", "does not draft with", "NEXTN"),
    (f"{NEXTN} --num-speculative-tokens 5", "option-exists", "option of vLLM", "--speculative-num-steps 5"),
    (
        """--tp 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'""",
        "option-exists",
        "option of vLLM",
        "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
    ),
    (f"{NEXTN} --max-model-len 8192", "option-exists", "option of vLLM", "--context-length 8192"),
    (f"{NEXTN} --gpu-memory-utilization 0.9", "option-exists", "of vLLM", "--mem-fraction-static 0.9"),
    (f"{NEXTN} --enable-prefix-caching", "option-exists", "on unless switched off", "leave it out"),
    (f"{NEXTN} --attention-backnd triton", "option-exists", "not an option of this", "--attention-backend"),
    (f"{NEXTN} --spec 3", "option-exists", "the beginning of", "--spec"),
    (
        f"--tp 8 --speculative-algorithm NEXTN {WORKS} --speculative-num-draft-tokens 3",
        "draft-tokens-agree",
        "3 draft tokens do not fit 3 steps",
        "--speculative-num-draft-tokens 4",
    ),
    (
        "--tp 8 --speculative-algorithm NEXTN --speculative-num-steps 3",
        "options-together",
        "given without --speculative-eagle-topk, --speculative-num-draft-tokens",
        "--speculative-num-draft-tokens 4",
    ),
    (
        "--tp 8 --speculative-algorithm NEXTN --speculative-eagle-topk 1",
        "options-together",
        "given without --speculative-num-steps, --speculative-num-draft-tokens",
        "--speculative-num-steps 3",
    ),
    (f"--tp 8 --speculative-algorithm NEXTN {WORKS}", "options-together", "given without", "draft-tokens 4"),
    (f"{NEXTN} --tp 3", "tensor-parallel-divides", "It does not", "1, 2, 4, 8"),
    (f"{NEXTN} --tp eight", "option-value", "eight is not an integer", ""),
    (f"{NEXTN} --moe-runner-backend trtllm", "option-value", "none of its choices", ""),
    (f"{NEXTN} --context-length 1000000", "context-fits", "greater than the derived", "a smaller one"),
    (f"{NEXTN} --load-format dummy", "weights-loaded", "random values", "leave --load-format out"),
    (f"{NEXTN} --speculative-draft-load-format dummy", "weights-loaded", "the head", "leave"),
    (f"{NEXTN} --speculative-accept-threshold-single 0.5", "lossless", "accepts drafts that", "leave"),
    (f"{NEXTN} --speculative-accept-threshold-acc 0.3", "lossless", "accepts drafts that", "leave"),
    (f"{NEXTN} --trust-remote-code some-word", "option-value", "belongs to no option", "leave it out"),
    (f"{NEXTN} --port", "option-value", "takes a value", ""),
)


FORMS = ("0.5.9", "0.5.23")
"""A version of each form in which options are declared and resolved."""


def typed(version: str, words: str) -> str:
    """A command with the state cache and the quantization that the version needs: nothing else breaks."""
    named = "--quantization modelopt_fp4 " if version == "0.5.9" else ""
    return f"{START} {named}{words} {strategy_option(version)} extra_buffer"


@pytest.mark.parametrize("version", FORMS)
@pytest.mark.parametrize(("words", "check", "seen", "advice"), WRONG)
def test_a_wrong_command_is_rejected_with_its_reason(
    version: str, words: str, check: str, seen: str, advice: str
) -> None:
    judgement = judged(version, typed(version, words))
    broken = [entry for entry in findings(judgement, check) if entry.ruling is Ruling.BREAKS]
    assert broken, check
    assert any(seen in entry.observed and advice in entry.remedy for entry in broken), broken


@pytest.mark.parametrize("version", VERSIONS)
def test_a_unique_beginning_is_taken_for_the_option(version: str) -> None:
    judgement = judged(version, typed(version, f"--tp 8 --speculative-algo NEXTN {TRIPLE}"))
    assert not ruled(judgement, Ruling.BREAKS, Ruling.UNKNOWN)
    assert judgement.resolved.algorithm.value == "EAGLE"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["MTP", "mtp", "EAGEL"])
def test_a_name_that_no_version_knows_is_refused(version: str, name: str) -> None:
    judgement = judged(version, typed(version, f"--tp 8 --speculative-algorithm {name} {TRIPLE}"))
    refused = [
        entry
        for entry in ruled(judgement, Ruling.BREAKS)
        if entry.check in ("algorithm-accepted", "option-value") and name.upper() in entry.observed.upper()
    ]
    assert refused
    assert refused[0].places


@pytest.mark.parametrize("version", VERSIONS)
def test_capitals_count_only_where_the_version_says_so(version: str) -> None:
    judgement = judged(version, typed(version, f"--tp 8 --speculative-algorithm nextn {TRIPLE}"))
    is_taken = not ruled(judgement, Ruling.BREAKS)
    assert is_taken is (version != "0.5.9")


@pytest.mark.parametrize(
    ("version", "given", "called"),
    [
        ("0.5.23", "--mamba-scheduler-strategy extra_buffer", "--mamba-radix-cache-strategy"),
        ("0.5.12", "--mamba-radix-cache-strategy extra_buffer", "--mamba-scheduler-strategy"),
        ("0.5.23", "--disable-piecewise-cuda-graph", "--disable-prefill-cuda-graph"),
    ],
)
def test_a_name_of_another_version_leads_to_the_one_of_this(version: str, given: str, called: str) -> None:
    (broken,) = [
        entry
        for entry in findings(judged(version, f"{START} {NEXTN} {given}"), "option-exists")
        if entry.ruling is Ruling.BREAKS
    ]
    assert broken.remedy == called
    assert called in broken.observed
    assert broken.places


@pytest.mark.parametrize("version", VERSIONS)
def test_trtllm_experts_on_consumer_blackwell(version: str) -> None:
    words = typed(version, f"{NEXTN} --moe-runner-backend flashinfer_trtllm --quantization modelopt_fp4")
    (finding,) = findings(judged(version, words, situation("rtx-pro-6000")), "expert-kernels-fit")[:1]
    assert finding.ruling is Ruling.BREAKS
    assert "on SM120" in finding.observed
    assert "asks for SM100 first" in finding.observed
    assert finding.remedy.endswith("flashinfer_cutlass")
    assert not findings(judged(version, words, situation("b200")), "expert-kernels-fit")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_attention_backend_that_the_assertion_for_hybrid_models_refuses(version: str) -> None:
    words = typed(version, f"{NEXTN} --attention-backend torch_native")
    refused = ruled(judged(version, words, situation("rtx-pro-6000")), Ruling.BREAKS)
    assert [entry.check for entry in refused] == ["attention-kernels-fit"]
    assert refused[0].remedy == "--attention-backend triton"
    assert refused[0].places[0].file.endswith("attention_registry.py")


def test_another_quantization_is_refused_or_replaced() -> None:
    words = f"{NEXTN} --quantization fp8"
    (refused,) = findings(judged("0.5.9", typed("0.5.9", words)), "quantization-fits")
    assert refused.ruling is Ruling.BREAKS
    assert "does not match" in refused.observed
    for version in ("0.5.12", "0.5.23"):
        (replaced,) = findings(judged(version, typed(version, words)), "quantization-fits")
        assert replaced.ruling is Ruling.WARNS
        assert "replaced by the checkpoint's own, modelopt_fp4" in replaced.observed


@pytest.mark.parametrize("version", VERSIONS)
def test_simulated_acceptance_is_lossy(version: str) -> None:
    judgement = judged(version, f"SGLANG_SIMULATE_ACC_LEN=3 {typed(version, NEXTN)}")
    broken = [entry for entry in findings(judgement, "lossless") if entry.ruling is Ruling.BREAKS]
    assert broken[0].remedy == "unset SGLANG_SIMULATE_ACC_LEN"
    assert broken[0].places[0].file == "sglang/srt/environ.py"
    harmless = judged(version, f"SGLANG_SIMULATE_ACC_LEN=-1 {typed(version, NEXTN)}")
    assert not [entry for entry in findings(harmless, "lossless") if entry.ruling is Ruling.BREAKS]


@pytest.mark.parametrize("version", VERSIONS)
def test_fewer_visible_gpus_than_ranks(version: str) -> None:
    judgement = judged(version, f"CUDA_VISIBLE_DEVICES=0,1 {typed(version, NEXTN)}")
    assert findings(judgement, "ranks-agree")[0].ruling is Ruling.BREAKS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_that_nobody_reads_warns(version: str) -> None:
    judgement = judged(version, f"SGLANG_SIMULATE_ACC_LENGTH=3 {typed(version, NEXTN)}")
    (finding,) = findings(judgement, "variables-read")
    assert (finding.ruling, finding.remedy) == (Ruling.WARNS, "SGLANG_SIMULATE_ACC_LEN")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("modules", "seen"),
    [
        ("qwen3_5_mtp", "keeps the module qwen3_5_mtp, which holds the head's class, from being registered"),
        ("llama, qwen3_5", "keeps the module qwen3_5, which holds the checkpoint's own class, from being"),
    ],
)
def test_a_disabled_module_takes_the_head_with_it(version: str, modules: str, seen: str) -> None:
    judgement = judged(version, f"SGLANG_DISABLED_MODEL_ARCHS='{modules}' {typed(version, NEXTN)}")
    (finding,) = findings(judgement, "models-registered")
    assert finding.ruling is Ruling.BREAKS
    assert finding.observed.startswith(seen)
    assert finding.remedy == "unset SGLANG_DISABLED_MODEL_ARCHS"
    assert finding.places[0].file.startswith("sglang/srt/models/qwen3_5")


def test_other_disabled_modules_are_nothing_to_this_head() -> None:
    judgement = judged("0.5.23", f"SGLANG_DISABLED_MODEL_ARCHS=llama {typed('0.5.23', NEXTN)}")
    assert not findings(judgement, "models-registered")
    assert not ruled(judgement, Ruling.BREAKS, Ruling.UNKNOWN)


def test_the_documented_command_stops_where_the_state_cache_is_not_chosen_for_it() -> None:
    judgement = judged("0.5.12", f"{START} {NEXTN}")
    (broken,) = ruled(judgement, Ruling.BREAKS)
    assert broken.check == "starts"
    assert "please use --mamba-scheduler-strategy extra_buffer" in broken.observed
    assert str(broken.places[0]) == "sglang/srt/server_args.py:2568"


def test_another_stacks_command() -> None:
    judgement = judged("0.5.23", "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 8")
    assert findings(judgement, "stack-agrees")[0].ruling is Ruling.BREAKS
    assert findings(judgement, "stack-agrees")[0].observed == "starts vLLM"


DEPLOYMENTS = (("rtx-pro-6000", 8), ("b200", 8), ("h200", 4))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("key", "ranks"), DEPLOYMENTS)
def test_the_proposed_command_is_accepted(version: str, key: str, ranks: int) -> None:
    plan, judgement = planned(version, situation(key, ranks))
    assert not ruled(judgement, Ruling.BREAKS, Ruling.UNKNOWN, Ruling.WARNS)
    resolved = judgement.resolved
    assert (resolved.algorithm.value, resolved.draft_tokens.value) == ("EAGLE", 3)
    assert resolved.draft_path.is_found
    assert not resolved.changed
    assert all(flag.reason and flag.places for flag in plan.flags)


@pytest.mark.parametrize(("key", "ranks"), DEPLOYMENTS)
def test_the_right_command_as_people_type_it(key: str, ranks: int) -> None:
    words = f"sglang serve nvidia/Qwen3.5-397B-A17B-NVFP4 --tp {ranks} --speculative-algorithm NEXTN {TRIPLE}"
    assert parse_command(words).stack is StackKind.SGLANG
    judgement = judged("0.5.23", words, situation(key, ranks))
    assert not ruled(judgement, Ruling.BREAKS, Ruling.UNKNOWN, Ruling.WARNS)
