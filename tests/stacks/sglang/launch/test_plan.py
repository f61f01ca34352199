"""The proposed command of SGLang serves what was looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.hardware.gpu_choice import find_gpu
from draftproof.stacks.command.planned import planned_command
from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.sglang.rules import SglangRules
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import StackKind
from tests.support.real_stacks import REAL_STACKS, real_stack
from tests.support.served_checkpoints import served_release
from tests.support.sglang_launch import START, TRIPLE, findings, judged, situation

VERSIONS = [version for name, version in REAL_STACKS if name == "sglang"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_revision_is_served_for_target_and_head(version: str) -> None:
    pinned = replace(served_release("nvidia_Qwen3.5-397B-A17B-NVFP4"), revision="9d0c1ab")
    deployment = Situation(gpu=find_gpu("h200"), tensor_parallel=4)
    plan = SglangRules().plan(real_stack("sglang", version), pinned, deployment)
    values = {flag.name: flag.value for flag in plan.flags}

    assert values["--revision"] == "9d0c1ab"
    assert values["--speculative-draft-model-revision"] == "9d0c1ab"


PACKED = "nvidia_Qwen3.5-397B-A17B-NVFP4"


@pytest.mark.parametrize(("key", "ranks"), [(None, 1), ("rtx-pro-6000", 8)])
def test_a_version_that_does_not_find_modelopts_fp4_is_told_of_it(key: str | None, ranks: int) -> None:
    """Links 3 and 4 agree: the head is built with the option, and the plan gives it."""
    where = Situation(gpu=find_gpu(key) if key else None, tensor_parallel=ranks)
    rules, stack, checkpoint = SglangRules(), real_stack("sglang", "0.5.9"), served_release(PACKED)
    plan = rules.plan(stack, checkpoint, where)
    (flag,) = [flag for flag in plan.flags if flag.name == "--quantization"]

    assert flag.value == "modelopt_fp4"
    assert "ModelOptFp8Config refuses the checkpoint" in flag.reason
    assert flag.places[0].file == "sglang/srt/layers/quantization/modelopt_quant.py"
    judgement = rules.judge(stack, checkpoint, where, planned_command(plan, StackKind.SGLANG))
    assert not [finding for finding in judgement.findings if finding.ruling is Ruling.BREAKS]
    head = rules.head_support(stack, checkpoint, where)
    assert head.head_precision.value == "BF16 with --quantization modelopt_fp4"


def test_a_command_that_does_not_tell_it_breaks() -> None:
    words = f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE}"
    (finding,) = findings(judged("0.5.9", words, situation("rtx-pro-6000")), "quantization-fits")

    assert (finding.ruling, finding.remedy) == (Ruling.BREAKS, "--quantization modelopt_fp4")
    assert "ModelOptFp8Config refuses the checkpoint" in finding.observed


def test_a_version_whose_handling_of_the_gpu_names_the_method_needs_no_option() -> None:
    """On SM100 version 0.5.9 sets the option to modelopt for this model, from which it finds FP4."""
    words = f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE}"
    assert not findings(judged("0.5.9", words, situation("b200")), "quantization-fits")


@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_a_version_that_finds_it_is_told_on_blackwell_alone(version: str) -> None:
    silent = judged(version, f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE}")
    plan = SglangRules().plan(real_stack("sglang", version), served_release(PACKED), Situation())

    assert not findings(silent, "quantization-fits")
    assert "--quantization" not in {flag.name for flag in plan.flags}
