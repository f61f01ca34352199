"""A changed source changes the answer: options renamed, removed and retyped, rules emptied, files broken."""

from __future__ import annotations

import pytest

from draftproof.stacks.launch_facts import LaunchJudgement, Ruling
from draftproof.stacks.overlay import OverlaidTree
from tests.support.real_stacks import real_stack
from tests.support.vllm_launch import RULES, VERSIONS, findings, judged, situation, with_tree

ARGUMENTS = "vllm/engine/arg_utils.py"
SPECULATIVE = "vllm/config/speculative.py"
TEXT = (
    "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 --tensor-parallel-size 8 "
    """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
)


def changed(version: str, file: str, old: str, new: str | None) -> LaunchJudgement:
    """The right command judged by a source in which `old` is `new`; None removes the file."""
    tree = real_stack("vllm", version).tree
    text = None
    if new is not None:
        original = tree.text(file)
        assert old in original
        text = original.replace(old, new)
    stack = with_tree(version, OverlaidTree(tree, {file: text}))
    return judged(version, TEXT, where=situation("h200", 8), stack=stack)


def rulings(judgement: LaunchJudgement, check: str) -> set[Ruling]:
    return {finding.ruling for finding in findings(judgement, check)}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_renamed_option_is_missed_and_the_new_name_offered(version: str) -> None:
    judgement = changed(version, ARGUMENTS, '"--tensor-parallel-size"', '"--tensor-parallel-degree"')

    (finding,) = [f for f in findings(judgement, "option-exists") if f.ruling is Ruling.BREAKS]
    assert finding.subject == "--tensor-parallel-size 8"
    assert "--tensor-parallel-degree" in finding.remedy


@pytest.mark.parametrize("version", VERSIONS)
def test_a_removed_option_is_missed(version: str) -> None:
    judgement = changed(version, ARGUMENTS, '"--speculative-config", "-sc"', '"--drafting"')
    assert Ruling.BREAKS in rulings(judgement, "option-exists")
    assert not judgement.resolved.algorithm.is_found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_method_that_is_gone_is_rejected(version: str) -> None:
    judgement = changed(version, SPECULATIVE, '    "mtp",\n', "")
    assert rulings(judgement, "algorithm-accepted") == {Ruling.BREAKS}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_renamed_key_is_rejected(version: str) -> None:
    judgement = changed(version, SPECULATIVE, "num_speculative_tokens: int", "num_drafts: int")
    assert Ruling.BREAKS in rulings(judgement, "speculative-key")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mapping_that_is_gone_ends_the_start(version: str) -> None:
    judgement = changed(version, SPECULATIVE, 'hf_config.model_type = "qwen3_5_mtp"', "pass")

    (finding,) = findings(judgement, "starts")
    assert finding.ruling is Ruling.BREAKS
    assert "Unsupported speculative method" in finding.observed
    assert finding.places[0].file == SPECULATIVE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_limit_on_drafts_is_seen(version: str) -> None:
    judgement = changed(version, SPECULATIVE, "Field(default=None, gt=0)", "Field(default=None, gt=3)")
    assert Ruling.BREAKS in rulings(judgement, "speculative-value")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [ARGUMENTS, SPECULATIVE])
def test_a_file_that_is_gone_leaves_everything_open(version: str, file: str) -> None:
    judgement = changed(version, file, "", None)

    assert rulings(judgement, "option-exists") == {Ruling.UNKNOWN}
    assert not judgement.resolved.algorithm.understood
    assert file in judgement.resolved.algorithm.sentence


@pytest.mark.parametrize("file", [ARGUMENTS, SPECULATIVE])
def test_a_syntax_error_leaves_everything_open(file: str) -> None:
    tree = real_stack("vllm", "0.33.0").tree
    stack = with_tree("0.33.0", OverlaidTree(tree, {file: "def broken(:\n"}))

    judgement = judged("0.33.0", TEXT, stack=stack)
    assert rulings(judgement, "option-exists") == {Ruling.UNKNOWN}
    assert not RULES.options(stack).understood or file == SPECULATIVE


def test_a_resolution_in_another_form_is_open_and_never_proven() -> None:
    judgement = changed("0.33.0", SPECULATIVE, "def __post_init__(self):", "def resolve_later(self):")

    assert rulings(judgement, "starts") == {Ruling.UNKNOWN}
    assert not judgement.resolved.algorithm.understood


def test_a_refusal_that_is_gone_is_not_noted() -> None:
    judgement = changed(
        "0.33.0",
        "vllm/sampling_params.py",
        "if self.min_p > _SAMPLING_EPS or self.logit_bias:",
        "if self.min_p > _SAMPLING_EPS:",
    )
    (finding,) = findings(judgement, "request-limits")
    assert "logit_bias" not in finding.observed
