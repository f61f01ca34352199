"""Groups of a head that no file shows are what its config promises, and say so up to link 5."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.stacks.backend_facts import Operation
from draftproof.stacks.known import rules_for
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.module_groups import module_groups
from draftproof.stacks.reading import found
from draftproof.stacks.stack import StackKind
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release
from tests.support.sglang_launch import situation

PACKED = "nvidia_Qwen3.5-397B-A17B-NVFP4"
NEWEST = ((StackKind.SGLANG, "0.5.23"), (StackKind.VLLM, "0.33.0"))


def test_only_the_head_of_a_checkpoint_without_files_is_promised() -> None:
    promised = {group.name for group in module_groups(served_release(PACKED)) if group.is_promised}
    assert promised
    assert all(name.startswith("MTP ") for name in promised)


def test_files_show_how_a_head_is_stored() -> None:
    stored = replace(served_release(PACKED), from_files=True)
    assert not [group for group in module_groups(stored) if group.is_promised]


@pytest.mark.parametrize(("kind", "version"), NEWEST)
def test_the_kernels_of_a_promised_head_are_marked(kind: StackKind, version: str) -> None:
    options = (("speculative_algorithm", "EAGLE", "given"), ("moe_runner_backend", "auto", "given"))
    resolved = ResolvedLaunch(found("EAGLE", ""), found(3, ""), found("", ""), options)
    facts = rules_for(kind).backends(
        real_stack(kind.value, version), served_release(PACKED), situation(), LaunchJudgement((), resolved)
    )
    matrices = [
        each for each in facts.choices if each.operation in (Operation.DENSE_GEMM, Operation.EXPERT_GEMM)
    ]
    assert {each.group for each in matrices if each.is_promised} == {
        each.group for each in matrices if each.group.startswith("MTP ")
    }
    assert any(each.is_promised for each in matrices)
