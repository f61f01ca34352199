"""Link 5 for SGLang, from the command to the kernels: the founding story, and what decides each answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftproof.stacks.backend_facts import BackendFacts, KernelChoice, Operation, Phase
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.reading import Reading, absent
from draftproof.stacks.sglang.backend.attention_kernels import DRAFT, REGISTRY
from draftproof.stacks.sglang.backend.backend_defect_queries import selectors_of as selectors_of_tree
from draftproof.stacks.sglang.backend.backend_defects import BACKEND_DEFECTS
from draftproof.stacks.sglang.backend.backends import backends
from draftproof.stacks.sglang.backend.delta_net import BACKEND as DELTA_NET
from draftproof.stacks.sglang.backend.quantised_methods import FP4_CHOICE, FP8_CHOICE, MODELOPT, UNQUANTISED
from draftproof.stacks.sglang.backend.state_copies import POOL, SIZING_FILES
from draftproof.stacks.sglang.rules import SglangRules
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Distribution, Stack
from tests.support.edited_tree import Edit, edited_tree, replaced
from tests.support.real_stacks import real_stack
from tests.support.sglang_kernels import (
    BRANCHES,
    COMPRESSED,
    EXPLICIT,
    EXTRA_BUFFER,
    FP8,
    HEADLINE,
    NONE,
    Asked,
    asked,
    checkpoint_named,
    kernels,
    resolved,
    selectors_of,
)
from tests.support.sglang_launch import START, TRIPLE, situation

LATEST = "0.5.23"
NEXTN = f"{START} --tp 8 --speculative-algorithm NEXTN"
EXPERTS = "routed experts"
RULES = SglangRules()


def served(
    text: str, gpu: str = "rtx-pro-6000", stack: Stack | None = None, name: str = HEADLINE
) -> BackendFacts:
    """What link 5 finds about a typed command."""
    chosen = stack or real_stack("sglang", LATEST)
    checkpoint, where = checkpoint_named(name), situation(gpu)
    judgement = RULES.judge(chosen, checkpoint, where, parse_command(text))
    return RULES.backends(chosen, checkpoint, where, judgement)


def kernel(facts: BackendFacts, group: str, phase: Phase = Phase.ANY) -> KernelChoice:
    return next(each for each in facts.choices if each.group == group and each.phase is phase)


class TestTheFoundingStory:
    """Qwen3.5-397B in NVFP4 on 8 RTX PRO 6000 with SGLang 0.5.23."""

    def test_nextn_alone_gets_expert_kernels_that_this_gpu_does_not_have(self) -> None:
        facts = served(NEXTN)
        experts = kernel(facts, EXPERTS)
        assert experts.backend.value == "flashinfer_trtllm"
        assert experts.valid.value is False
        assert experts.backend.places[0].file == MODELOPT
        assert experts.explicit == "--moe-runner-backend flashinfer_cutlass"
        assert [finding.defect.identifier for finding in facts.defects if finding.present.value] == [
            "sglang-packed-experts-without-kernels"
        ]

    def test_with_the_runner_named_every_kernel_is_one_that_runs(self) -> None:
        facts = served(f"{NEXTN} {TRIPLE} --moe-runner-backend flashinfer_cutlass")
        assert all(choice.valid.value for choice in facts.choices)
        experts = kernel(facts, EXPERTS)
        assert experts.backend.value == "flashinfer_cutlass"
        assert experts.native is True
        assert {need.name for need in experts.needs} == {"flashinfer-python", "nvcc"}
        assert facts.state_layout.value is not None
        assert facts.state_layout.value.copies == 5 + 4

    def test_every_phase_has_its_kernels(self) -> None:
        facts = served(NEXTN)
        seen = {(choice.operation, choice.phase) for choice in facts.choices}
        for phase in (Phase.PREFILL, Phase.DECODE, Phase.VERIFY):
            assert {(Operation.ATTENTION, phase), (Operation.GATED_DELTA_NET, phase)} <= seen
        assert (Operation.ATTENTION, Phase.DRAFT) in seen
        assert {EXPERTS, "shared experts", "lm_head", "MTP projection", "MTP experts"} <= {
            choice.group for choice in facts.choices
        }

    def test_every_answer_names_a_line(self) -> None:
        tree = real_stack("sglang", LATEST).tree
        for choice in served(NEXTN).choices:
            assert choice.backend.places, choice
            for place in (*choice.backend.places, *choice.valid.places):
                assert 1 <= place.line <= len(tree.text(place.file).splitlines())


class TestWhatIsInstalled:
    """Packages beside the stack, or asked for by its metadata."""

    def stack(self, *names: str) -> Stack:
        beside = tuple(Distribution(name, "1.0") for name in names)
        return replace(real_stack("sglang", LATEST), beside=beside)

    def test_the_version_that_the_metadata_asks_for_is_named(self) -> None:
        experts = kernel(served(f"{NEXTN} --moe-runner-backend flashinfer_cutlass"), EXPERTS)
        need = next(each for each in experts.needs if each.name == "flashinfer-python")
        assert need.version == "==0.7.2"
        assert need.present is None

    def test_a_package_that_is_not_there_is_missing(self) -> None:
        text = f"{NEXTN} --moe-runner-backend flashinfer_cutlass"
        experts = kernel(served(text, stack=self.stack("sglang-kernel")), EXPERTS)
        assert {need.name: need.present for need in experts.needs}["flashinfer-python"] is False

    def test_prebuilt_kernels_need_no_compiler(self) -> None:
        text = f"{NEXTN} --moe-runner-backend flashinfer_cutlass"
        stack = self.stack("flashinfer-python", "flashinfer-jit-cache", "sglang-kernel")
        assert [need.name for need in kernel(served(text, stack=stack), EXPERTS).needs] == [
            "flashinfer-python"
        ]


class TestVariables:
    """Environment variables of the command are those of the server, which selectors read."""

    def test_a_variable_of_the_command_changes_the_kernel(self) -> None:
        old = real_stack("sglang", "0.5.9")
        words = f"{NEXTN} {TRIPLE} --mamba-scheduler-strategy extra_buffer"
        group = "attention projections"
        plain = served(words, "h200", old, FP8)
        without = served(f"SGLANG_ENABLE_JIT_DEEPGEMM=0 {words}", "h200", old, FP8)
        assert kernel(plain, group).backend.value == "deepgemm"
        assert kernel(without, group).backend.value not in ("deepgemm", None)

    def test_a_defect_that_a_variable_avoids_is_not_there(self) -> None:
        def breaking(text: str) -> list[str]:
            facts = served(text, "rtx-pro-6000", real_stack("sglang", "0.5.9"), FP8)
            return [each.defect.identifier for each in facts.defects if each.present.value]

        words = f"{NEXTN} {TRIPLE} --mamba-scheduler-strategy extra_buffer"
        assert "sglang-deepgemm-unasked" in breaking(words)
        assert "sglang-deepgemm-unasked" not in breaking(f"SGLANG_ENABLE_JIT_DEEPGEMM=0 {words}")


def test_readings_of_defects_belong_to_their_rules() -> None:
    """Whatever order the rules stand in: a kept reading carries the name of its rule."""
    first = served(NEXTN)
    again = served(NEXTN)
    assert first.defects == again.defects
    for finding in first.defects:
        (entry,) = [each for each in BACKEND_DEFECTS if each.defect is finding.defect]
        assert finding.present == entry.look(selectors_of_tree(real_stack("sglang", LATEST).tree))


def test_without_a_gpu_there_are_states_and_no_kernels() -> None:
    stack, checkpoint, where = real_stack("sglang", LATEST), checkpoint_named(HEADLINE), Situation()
    judgement = RULES.judge(stack, checkpoint, where, parse_command(f"{NEXTN} {TRIPLE}"))
    facts = RULES.backends(stack, checkpoint, where, judgement)
    assert facts.choices == ()
    assert facts.state_layout.value is not None


def test_a_command_that_was_not_resolved_leaves_everything_open() -> None:
    nothing: Reading[Any] = absent("not resolved")
    judgement = LaunchJudgement((), ResolvedLaunch(nothing, nothing, nothing))
    facts = backends(real_stack("sglang", LATEST), checkpoint_named(HEADLINE), situation(), judgement)
    assert facts.choices == ()
    assert not facts.state_layout.understood


@pytest.mark.parametrize(("one", "like"), [(103, 100), (121, 120)])
def test_the_smaller_revision_of_a_gpu_gets_the_same_kernels(one: int, like: int) -> None:
    first, second = asked(LATEST, HEADLINE, one, **EXPLICIT), asked(LATEST, HEADLINE, like, **EXPLICIT)
    assert [(each.backend.value, each.valid.value) for each in first.choices] == [
        (each.backend.value, each.valid.value) for each in second.choices
    ]


def changed(
    name: str, capability: int, edits: dict[str, Edit], version: str = LATEST, **fields: Any
) -> tuple[Asked, Asked]:
    """The answers of the real version and of a changed copy, for the same command in force."""
    resolution = resolved(version, name, capability, **fields)
    original = real_stack("sglang", version).tree
    answers = (selectors_of(version, tree) for tree in (original, edited_tree(original, edits)))
    before, after = (kernels(each, name, capability, resolution) for each in answers)
    return before, after


class TestAChangedSource:
    """What is found follows the source, with its lines."""

    def test_another_default_of_the_packed_matrices(self) -> None:
        edit = replaced('backend = "flashinfer_cutlass"', 'backend = "flashinfer_cudnn"')
        before, after = changed(COMPRESSED, 120, {FP4_CHOICE: edit}, **EXPLICIT)
        group = "attention projections"
        assert before.kernel(group).backend.value == "flashinfer_cutlass"
        assert after.kernel(group).backend.value == "flashinfer_cudnn"
        assert after.kernel(group).backend.places[0].file == FP4_CHOICE

    def test_another_order_of_the_functions_for_block_scales(self) -> None:
        edit = replaced('        backend = "cutlass"\n', '        backend = "triton"\n')
        before, after = changed(FP8, 120, {FP8_CHOICE: edit}, **EXPLICIT)
        group = "attention projections"
        assert before.kernel(group).backend.value == "cutlass"
        assert after.kernel(group).backend.value == "triton"

    def test_another_runner_for_experts(self) -> None:
        edit = replaced(
            "                moe_runner_backend = MoeRunnerBackend.FLASHINFER_TRTLLM\n",
            "                moe_runner_backend = MoeRunnerBackend.FLASHINFER_CUTLASS\n",
        )
        before, after = changed(HEADLINE, 120, {MODELOPT: edit}, **EXPLICIT)
        assert before.kernel(EXPERTS).valid.value is False
        assert after.kernel(EXPERTS).backend.value == "flashinfer_cutlass"
        assert after.kernel(EXPERTS).valid.value is True
        assert after.kernel(EXPERTS).explicit == ""

    def test_a_class_that_refuses_the_gpu(self) -> None:
        edit = replaced(
            "    if backend.is_gemv():\n",
            "    if get_platform().is_sm120:\n        raise ValueError('not on this GPU')\n"
            "    if backend.is_gemv():\n",
        )
        _, after = changed(HEADLINE, 120, {UNQUANTISED: edit}, **EXPLICIT)
        choice = after.kernel("lm_head")
        assert choice.valid.value is False
        assert choice.valid.sentence == "not on this GPU"
        assert choice.valid.places[0].file == UNQUANTISED

    def test_an_attention_backend_that_is_no_longer_registered(self) -> None:
        edit = replaced('@register_attention_backend("flashinfer")\n', "")
        _, after = changed(HEADLINE, 120, {REGISTRY: edit}, **EXPLICIT)
        choice = after.kernel("attention layers", Phase.VERIFY)
        assert choice.valid.value is False
        assert "no backend is registered as flashinfer" in choice.valid.sentence

    def test_a_draft_factory_that_does_not_know_the_backend(self) -> None:
        edit = replaced('            "flashinfer": self._create_flashinfer_decode_backend,\n', "")
        _, after = changed(HEADLINE, 120, {DRAFT: edit}, **EXPLICIT)
        assert after.kernel("MTP attention layer", Phase.DRAFT).valid.value is False

    def test_fewer_slots_for_a_request(self) -> None:
        file = SIZING_FILES[0][0]
        edit = replaced("MAX_RUNNING_REQUESTS_RATIO = 3", "MAX_RUNNING_REQUESTS_RATIO = 2")
        before, after = changed(HEADLINE, 120, {file: edit}, **EXPLICIT)
        assert before.layout.value is not None
        assert after.layout.value is not None
        assert before.layout.value.committed_copies == after.layout.value.committed_copies + 1

    @pytest.mark.parametrize(
        ("file", "group", "phase"),
        [
            (MODELOPT, EXPERTS, Phase.ANY),
            (UNQUANTISED, "lm_head", Phase.ANY),
            (REGISTRY, "attention layers", Phase.DECODE),
            (DELTA_NET, "Gated DeltaNet layers", Phase.DECODE),
        ],
    )
    def test_a_file_in_an_unknown_form_leaves_its_answer_open(
        self, file: str, group: str, phase: Phase
    ) -> None:
        _, after = changed(HEADLINE, 120, {file: lambda _: "NOTHING = None\n"}, **EXPLICIT)
        choice = after.kernel(group, phase)
        assert choice.valid.value is not True
        assert choice.valid.sentence

    def test_a_state_pool_in_an_unknown_form_leaves_the_layout_open(self) -> None:
        _, after = changed(HEADLINE, 120, {POOL: lambda _: "NOTHING = None\n"}, **EXPLICIT)
        assert not after.layout.understood
        assert POOL in after.layout.sentence


class TestStates:
    """Copies of the recurrent state of one request."""

    @pytest.mark.parametrize(
        ("version", "fields", "copies"),
        [
            (LATEST, EXPLICIT, (5, 4)),
            (LATEST, NONE, (5, 0)),
            (LATEST, BRANCHES, (5, 6)),
            (LATEST, {**EXPLICIT, "disable_radix_cache": True}, (1, 4)),
            (LATEST, {**EXPLICIT, "mamba_radix_cache_strategy": "extra_buffer_lazy"}, (4, 4)),
            (LATEST, {**EXPLICIT, "disable_overlap_schedule": True}, (3, 4)),
            ("0.5.12", {**EXPLICIT, **EXTRA_BUFFER}, (5, 4)),
            ("0.5.9", EXPLICIT, (1, 4)),
        ],
    )
    def test_slots_and_states_of_a_verify_pass(
        self, version: str, fields: dict[str, Any], copies: tuple[int, int]
    ) -> None:
        layout = asked(version, HEADLINE, 90, **fields).layout
        assert layout.value is not None, layout.sentence
        assert (layout.value.committed_copies, layout.value.draft_copies) == copies
        assert layout.places

    def test_replay_keeps_inputs_instead_of_states(self) -> None:
        layout = asked(LATEST, HEADLINE, 90, **EXPLICIT, enable_linear_replayssm_spec=True).layout.value
        assert layout is not None
        assert (layout.draft_copies, layout.kept_rows) == (0, 16)

    def test_the_option_comes_before_the_checkpoint(self) -> None:
        assert asked(LATEST, HEADLINE, 90, **EXPLICIT).layout.value.state_bytes == 4  # type: ignore[union-attr]
        short = asked(LATEST, HEADLINE, 90, **EXPLICIT, mamba_ssm_dtype="bfloat16").layout
        assert short.value is not None
        assert short.value.state_bytes == 2
        assert "by the option" in short.sentence
