"""Known defects of launching are found where they are, and a mended source comes out clean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.launch_defects import LAUNCH_DEFECTS, launch_defects
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release
from tests.support.vllm_launch import HEADLINE, VERSIONS, situation

SPECULATIVE = "vllm/config/speculative.py"


def tree_of(version: str) -> SourceTree:
    return real_stack("vllm", version).tree


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("defect", LAUNCH_DEFECTS, ids=lambda defect: defect.identifier)
def test_a_defect_is_found_in_the_versions_that_have_it(version: str, defect: object) -> None:
    rule = next(entry for entry in LAUNCH_DEFECTS if entry is defect)
    reading = rule.query(tree_of(version))

    assert reading.understood, reading.sentence
    assert reading.value is (version in rule.observed_in)
    assert reading.places


MENDED = (
    ("vllm-part-of-a-model-type", 'in ("pangu_ultra_moe")', 'in ("pangu_ultra_moe",)'),
    ("vllm-no-layers-divides", "elif n_predict is not None:", "elif n_predict:"),
)


@pytest.mark.parametrize(("identifier", "old", "new"), MENDED)
def test_a_mended_source_comes_out_clean(identifier: str, old: str, new: str) -> None:
    tree = tree_of("0.33.0")
    assert old in tree.text(SPECULATIVE)
    mended = OverlaidTree(tree, {SPECULATIVE: tree.text(SPECULATIVE).replace(old, new)})
    rule = next(entry for entry in LAUNCH_DEFECTS if entry.identifier == identifier)

    reading = rule.query(mended)
    assert reading.understood
    assert reading.value is False


@pytest.mark.parametrize("defect", LAUNCH_DEFECTS, ids=lambda defect: defect.identifier)
def test_a_source_in_another_form_is_open(defect: object) -> None:
    rule = next(entry for entry in LAUNCH_DEFECTS if entry is defect)
    other = OverlaidTree(tree_of("0.33.0"), {SPECULATIVE: "class Drafting:\n    pass\n"})

    reading = rule.query(other)
    assert not reading.understood
    assert SPECULATIVE in reading.sentence


def test_a_defect_matters_to_the_checkpoints_that_it_hits() -> None:
    checkpoint = served_release(HEADLINE)
    hit = {
        f.defect.identifier for f in launch_defects(tree_of("0.33.0"), checkpoint, situation()) if f.applies
    }
    assert "vllm-path-decides-block-drafter" not in hit

    renamed = replace(checkpoint, name="/models/dspark/qwen")
    hit = {f.defect.identifier for f in launch_defects(tree_of("0.33.0"), renamed, situation()) if f.applies}
    assert "vllm-path-decides-block-drafter" in hit


def test_no_layers_are_only_divided_by_where_they_are_looked_at() -> None:
    checkpoint = served_release("gittensor_Qwen3.8-27B-NVFP4-RTX5090")
    for version, is_hit in (("0.19.0", False), ("0.26.0", False), ("0.33.0", True)):
        found = launch_defects(tree_of(version), checkpoint, situation())
        hit = {finding.defect.identifier for finding in found if finding.applies}
        assert ("vllm-no-layers-divides" in hit) is is_hit
