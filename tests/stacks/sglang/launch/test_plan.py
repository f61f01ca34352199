"""The proposed command of SGLang serves what was looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.hardware.gpu_choice import find_gpu
from draftproof.stacks.sglang.rules import SglangRules
from draftproof.stacks.situation import Situation
from tests.support.real_stacks import REAL_STACKS, real_stack
from tests.support.served_checkpoints import served_release

VERSIONS = [version for name, version in REAL_STACKS if name == "sglang"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_revision_is_served_for_target_and_head(version: str) -> None:
    pinned = replace(served_release("nvidia_Qwen3.5-397B-A17B-NVFP4"), revision="9d0c1ab")
    deployment = Situation(gpu=find_gpu("h200"), tensor_parallel=4)
    plan = SglangRules().plan(real_stack("sglang", version), pinned, deployment)
    values = {flag.name: flag.value for flag in plan.flags}

    assert values["--revision"] == "9d0c1ab"
    assert values["--speculative-draft-model-revision"] == "9d0c1ab"
