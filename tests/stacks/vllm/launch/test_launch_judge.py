"""Launch commands that vLLM does not take, or that do not do what they say, each with its reason."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from draftproof.stacks.launch_facts import Ruling
from tests.support.served_checkpoints import served_release
from tests.support.vllm_launch import HEADLINE, VERSIONS, broken, findings, judged, situation

START = "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4"


def asked(**keys: object) -> str:
    """`--speculative-config` with these keys beside the method and K, unless they name others."""
    values = {"method": "mtp", "num_speculative_tokens": 3, **keys}
    given = {key: value for key, value in values.items() if value is not None}
    return f"--speculative-config '{json.dumps(given)}'"


WRONG = (
    # what is typed after the start, the check that breaks, what is seen, what is advised
    (asked(method="nextn"), "algorithm-accepted", "none of them", '"method": "mtp"'),
    (asked(method="NEXTN"), "algorithm-accepted", "none of them", '"method": "mtp"'),
    (asked(method="EAGLE"), "algorithm-accepted", "capitals included", '"method": "mtp"'),
    (asked(method="eagle"), "starts", "without speculative model", '"method": "mtp"'),
    (asked(num_speculative_tokens=None), "starts", "num_speculative_tokens", "num_speculative_tokens"),
    (asked(num_speculative_tokens=0), "speculative-value", "must be > 0", "num_speculative_tokens"),
    (asked(num_speculative_tokens="three"), "speculative-value", "is no int", "num_speculative_tokens"),
    (asked(num_draft_tokens=4), "speculative-key", "refuses further fields", "num_speculative_tokens"),
    (asked(tensor_parallel_size=8), "starts", "draft_tensor_parallel_size", ""),
    (asked(draft_tensor_parallel_size=3), "starts", "other value than 1", ""),
    (asked(rejection_sample_method="typical"), "speculative-value", "none of them", "one of"),
    ("--speculative-config {method:mtp,num_speculative_tokens:3}", "option-value", "quotes away", "JSON"),
    (f"{asked()} --speculative-algorithm NEXTN", "option-exists", "it is SGLang's", "--speculative-config"),
    (
        f"{asked()} --speculative-num-steps 3",
        "option-exists",
        "it is SGLang's",
        '"num_speculative_tokens": 3}',
    ),
    (
        f"{asked()} --speculative-num-draft-tokens 4",
        "option-exists",
        "it is SGLang's",
        '"num_speculative_tokens": 3}',
    ),
    (f"{asked()} --tp 8", "option-exists", "it is SGLang's", "--tensor-parallel-size"),
    (f"{asked()} --num-speculative-tokens 3", "option-exists", "an earlier vLLM's", ""),
    (f"{asked()} --max-num-sqs 8", "option-exists", "not among", "--max-num-seqs"),
    (f"{asked()} --tensor-parallel-size eight", "option-value", "is no integer", "an integer"),
    (f"{asked()} --tensor-parallel-size 3", "tensor-parallel-divides", "does not", "--tensor-parallel-size"),
    (f"{asked()} --gpu-memory-utilization 1.5", "option-value", "must be <= 1", "a number"),
    (f"{asked()} --moe-backend trtllm", "option-value", "only", "flashinfer_trtllm"),
    (f"{asked()} --attention-backend FA3", "option-value", "only", "FLASH_ATTN"),
    (f"{asked()} --enforce-eager=yes", "option-value", "takes no value", ""),
    (f"{asked()} --speculative-config.method mtp", "speculative-given-once", "replaces the JSON", "one"),
    (f"{asked()} --load-format dummy", "weights-loaded", "random values", "leave --load-format out"),
    (f"{asked()} --max-model-len 1000000", "context-fits", "refuses more", "--max-model-len 262144"),
    (f"something-else {asked()}", "model-path", "belong to no option", "remove"),
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("words", "check", "seen", "advice"), WRONG)
def test_a_wrong_command_is_rejected_with_its_reason(
    version: str, words: str, check: str, seen: str, advice: str
) -> None:
    judgement = judged(version, f"{START} {words}", where=situation())

    found = [finding for finding in broken(judgement) if finding.check == check]
    assert found, [(finding.check, finding.observed) for finding in broken(judgement)]
    assert any(seen in finding.observed and advice in finding.remedy for finding in found), found
    assert all(finding.places or check in ("option-exists", "model-path") for finding in found)


@pytest.mark.parametrize("version", VERSIONS)
def test_synthetic_acceptance_is_lossy(version: str) -> None:
    key = "synthetic_acceptance_rate" if version == "0.19.0" else "synthetic_acceptance_length"
    value = 0.8 if version == "0.19.0" else 3.0
    judgement = judged(version, f"{START} {asked(rejection_sample_method='synthetic', **{key: value})}")

    (finding,) = findings(judgement, "lossless")
    assert finding.ruling is Ruling.BREAKS
    assert "whatever the target says" in finding.observed


def test_fly_is_lossy() -> None:
    (finding,) = findings(judged("0.33.0", f"{START} {asked(rejection_sample_method='fly')}"), "lossless")
    assert finding.ruling is Ruling.BREAKS


def test_adaptive_verification_dies_on_gated_delta_net() -> None:
    judgement = judged("0.33.0", f"{START} {asked(enable_adaptive_verification=True)}")

    (finding,) = findings(judgement, "adaptive-verification")
    assert finding.ruling is Ruling.BREAKS
    assert "after the weights are loaded" in finding.observed
    assert any(place.file.endswith("gdn_attn.py") for place in finding.places)


def test_a_schedule_that_the_scheduler_refuses_later_is_refused_now() -> None:
    wrong = judged("0.33.0", f"{START} {asked(num_speculative_tokens_per_batch_size=[[5, 9, 2]])}")
    right = judged("0.33.0", f"{START} {asked(num_speculative_tokens_per_batch_size=[[1, 9, 2]])}")

    assert findings(wrong, "draft-token-schedule")[0].ruling is Ruling.BREAKS
    assert "must start at 1" in findings(wrong, "draft-token-schedule")[0].observed
    assert findings(right, "draft-token-schedule")[0].ruling is Ruling.HOLDS


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_name_of_the_method_becomes_mtp_with_a_warning(version: str) -> None:
    judgement = judged(version, f"{START} {asked(method='deepseek_mtp')}")

    assert not broken(judgement)
    assert judgement.resolved.algorithm.value == "mtp"
    assert findings(judgement, "algorithm-accepted")[0].ruling is Ruling.WARNS
    assert any("deprecated" in reading.sentence for reading in judgement.resolved.changed)


def test_words_in_the_path_change_the_method() -> None:
    checkpoint = replace(served_release(HEADLINE), name="/models/my-dspark-dir/qwen35moe")
    judgement = judged("0.33.0", f"vllm serve {checkpoint.name} {asked()}", checkpoint)

    assert judgement.resolved.algorithm.value == "dspark"
    (finding,) = findings(judgement, "head-drafts")
    assert finding.ruling is Ruling.BREAKS
    assert "words in the draft's path" in finding.observed


def test_the_draft_does_not_inherit_the_revision() -> None:
    (finding,) = findings(judged("0.33.0", f"{START} {asked()} --revision abc"), "draft-revision")
    assert finding.ruling is Ruling.WARNS
    assert not findings(judged("0.33.0", f"{START} {asked(revision='abc')} --revision abc"), "draft-revision")


def test_no_layers_divide_by_zero() -> None:
    judgement = judged("0.33.0", f"vllm serve x {asked()}", "gittensor_Qwen3.8-27B-NVFP4-RTX5090")

    assert "ZeroDivisionError" in findings(judgement, "starts")[0].observed


def test_more_layers_ask_for_a_multiple() -> None:
    original = served_release(HEADLINE)
    text = {**original.config["text_config"], "mtp_num_hidden_layers": 2}
    checkpoint = replace(original, config={**original.config, "text_config": text})

    assert "divisible" in findings(judged("0.33.0", f"{START} {asked()}", checkpoint), "starts")[0].observed
    four = judged("0.33.0", f"{START} {asked(num_speculative_tokens=4)}", checkpoint)
    assert four.resolved.draft_tokens.value == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_trtllm_experts_do_not_run_on_sm120(version: str) -> None:
    text = f"{START} -tp 8 {asked()} --moe-backend flashinfer_trtllm"
    on_board = judged(version, text, where=situation("rtx-pro-6000", 8))
    on_data_center = judged(version, text, where=situation("b200", 8))

    (finding,) = findings(on_board, "backend-fits-gpu")
    assert finding.ruling is Ruling.BREAKS
    assert "current device" in finding.observed
    assert findings(on_data_center, "backend-fits-gpu")[0].ruling is Ruling.HOLDS


def test_without_speculation_nothing_drafts() -> None:
    judgement = judged("0.33.0", f"{START} -tp 8")

    assert judgement.resolved.algorithm.understood
    assert not judgement.resolved.algorithm.is_found
    assert "without a word" in judgement.resolved.algorithm.sentence


def test_a_command_for_another_stack_is_named_as_that() -> None:
    judgement = judged("0.33.0", "python -m sglang.launch_server --model-path x --tp 8")

    assert findings(judgement, "stack-agrees")[0].ruling is Ruling.BREAKS
    assert "the first word after" in findings(judgement, "option-exists")[0].remedy


def test_requests_that_are_refused_are_noted() -> None:
    (finding,) = findings(judged("0.33.0", f"{START} {asked()}"), "request-limits")
    assert finding.ruling is Ruling.WARNS
    assert "min_p" in finding.observed
    assert "logit_bias" in finding.observed


def test_unknown_variables_are_named() -> None:
    text = f"VLLM_USE_FLASHINFER_SAMPLR=0 SGLANG_ENABLE_SPEC_V2=1 VLLM_LOGGING_LEVEL=INFO {START} {asked()}"
    rulings = {f.subject: (f.ruling, f.remedy) for f in findings(judged("0.33.0", text), "environment-known")}

    assert rulings["VLLM_LOGGING_LEVEL=INFO"][0] is Ruling.HOLDS
    assert rulings["SGLANG_ENABLE_SPEC_V2=1"][0] is Ruling.WARNS
    assert "VLLM_USE_FLASHINFER_SAMPLER" in rulings["VLLM_USE_FLASHINFER_SAMPLR=0"][1]


@pytest.mark.parametrize("version", ["0.26.0", "0.33.0"])
def test_the_short_options_mean_the_same(version: str) -> None:
    judgement = judged(version, f"{START} --spec-method mtp --spec-tokens 2")

    assert not broken(judgement)
    assert judgement.resolved.draft_tokens.value == 2
    both = judged(version, f"{START} {asked()} --spec-tokens 2")
    assert "mutually exclusive" in findings(both, "speculative-given-once")[0].observed


def test_the_short_options_are_not_in_the_oldest_version() -> None:
    judgement = judged("0.19.0", f"{START} --spec-method mtp --spec-tokens 2")
    assert {finding.subject for finding in findings(judgement, "option-exists")} >= {"--spec-method mtp"}


def test_dotted_options_make_one_object() -> None:
    text = f"{START} --speculative-config.method mtp --speculative-config.num-speculative-tokens 3"
    judgement = judged("0.33.0", text)

    assert not broken(judgement)
    assert judgement.resolved.draft_tokens.value == 3


def test_a_refused_configuration_leaves_speculation_off() -> None:
    algorithm = judged("0.33.0", f"{START} {asked(method='nextn')}").resolved.algorithm

    assert algorithm.understood
    assert not algorithm.is_found
    assert "is refused" in algorithm.sentence


def test_fewer_gpus_than_were_named_are_noted() -> None:
    on_four = judged("0.33.0", f"{START} -tp 4 {asked()}", where=situation("h200", 8))
    spread = judged("0.33.0", f"{START} -tp 4 -dp 2 {asked()}", where=situation("h200", 8))

    assert findings(on_four, "ranks-agree")[0].ruling is Ruling.WARNS
    assert not findings(spread, "ranks-agree")
