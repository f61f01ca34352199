"""The proposed command is clean by the rules that judge everybody's, on the machines people have."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from draftproof.stacks.launch_facts import LaunchPlan, Ruling
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release
from tests.support.vllm_launch import HEADLINE, RULES, VERSIONS, beside, planned, situation

MACHINES = (("rtx-pro-6000", 8), ("b200", 8), ("h200", 4))


def plan_of(version: str, gpu: str = "h200", ranks: int = 4) -> LaunchPlan:
    return RULES.plan(real_stack("vllm", version), served_release(HEADLINE), situation(gpu, ranks))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("gpu", "ranks"), MACHINES)
def test_the_headline_checkpoint_starts_with_its_head(version: str, gpu: str, ranks: int) -> None:
    judgement = planned(version, HEADLINE, situation(gpu, ranks))

    wrong = [f for f in judgement.findings if f.ruling in (Ruling.BREAKS, Ruling.UNKNOWN)]
    assert not wrong, wrong
    assert judgement.resolved.algorithm.value == "mtp"
    assert judgement.resolved.draft_tokens.value == 3
    assert all(reading.understood for reading in judgement.resolved.changed)


@pytest.mark.parametrize("version", ["0.19.0", "0.26.0"])
def test_a_text_only_config_is_mapped_in_the_newest_version_alone(version: str) -> None:
    judgement = planned(version, "Qwen_Qwen3.8-2.4T-A95B-FP8", situation("b200", 8))
    wrong = [f for f in judgement.findings if f.ruling is Ruling.BREAKS]
    assert any("Unsupported speculative method" in finding.observed for finding in wrong)

    newest = planned("0.33.0", "Qwen_Qwen3.8-2.4T-A95B-FP8", situation("b200", 8))
    assert newest.resolved.algorithm.value == "mtp"


def test_every_word_has_a_reason() -> None:
    plan = plan_of("0.33.0")

    assert plan.program == ("vllm", "serve")
    assert plan.flags[0].name == served_release(HEADLINE).name
    assert all(flag.reason for flag in plan.flags)
    assert all(flag.places for flag in plan.flags[1:])
    config = next(flag for flag in plan.flags if flag.name == "--speculative-config")
    assert json.loads(config.value or "") == {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(("version", "has_guard"), [("0.19.0", False), ("0.26.0", True), ("0.33.0", True)])
def test_unwritten_parameters_are_made_an_error_where_the_version_can(version: str, has_guard: bool) -> None:
    names = {flag.name for flag in plan_of(version).flags}
    assert ("--model-loader-extra-config" in names) is has_guard


def test_without_flashinfer_the_kernels_of_the_stack_itself_are_asked_for() -> None:
    stack = beside("0.33.0", "torch 2.14.0", "humming-kernels 0.1.19")
    plan = RULES.plan(stack, served_release(HEADLINE), situation("h200", 4))

    assert ("--gdn-prefill-backend", "triton") in {(flag.name, flag.value) for flag in plan.flags}
    assert [(entry.name, entry.value) for entry in plan.environment] == [("VLLM_USE_FLASHINFER_SAMPLER", "0")]
    flashinfer = next(need for need in plan.requirements if need.name == "flashinfer-python")
    assert flashinfer.present is False
    assert flashinfer.version == "==0.7.2.post1"


def test_with_flashinfer_nothing_is_asked_for() -> None:
    stack = beside("0.33.0", "flashinfer-python 0.7.2.post1", "humming-kernels 0.1.19")
    plan = RULES.plan(stack, served_release(HEADLINE), situation("h200", 4))

    assert "--gdn-prefill-backend" not in {flag.name for flag in plan.flags}
    assert not plan.environment


@pytest.mark.parametrize("version", VERSIONS)
def test_a_revision_is_served_for_target_and_head(version: str) -> None:
    pinned = replace(served_release(HEADLINE), revision="9d0c1ab")
    plan = RULES.plan(real_stack("vllm", version), pinned, situation("h200", 4))
    values = {flag.name: flag.value for flag in plan.flags}

    assert values["--revision"] == "9d0c1ab"
    assert json.loads(values["--speculative-config"] or "")["revision"] == "9d0c1ab"
