"""Known defects of choosing kernels are found where they are, and a mended source comes out clean."""

from __future__ import annotations

import pytest

from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.vllm.backend.backend_defects import BACKEND_DEFECTS, backend_defects
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release
from tests.support.vllm_launch import HEADLINE, VERSIONS, beside, situation

GDN_LAYER = "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py"
PREFILL = "vllm-prefill-kernel-not-looked-for"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("defect", BACKEND_DEFECTS, ids=lambda defect: defect.identifier)
def test_a_defect_is_found_in_the_versions_that_have_it(version: str, defect: object) -> None:
    rule = next(entry for entry in BACKEND_DEFECTS if entry is defect)
    reading = rule.query(real_stack("vllm", version).tree)

    assert reading.understood, reading.sentence
    assert reading.value is (version in rule.observed_in)
    assert reading.places


def test_a_rule_that_looks_for_the_package_is_clean() -> None:
    tree = real_stack("vllm", "0.33.0").tree
    mended = tree.text(GDN_LAYER).replace(
        'if backend in ["flashinfer", "auto"] and supports_flashinfer:',
        'if backend in ["flashinfer", "auto"] and supports_flashinfer and has_flashinfer():',
    )
    rule = next(entry for entry in BACKEND_DEFECTS if entry.identifier == PREFILL)

    assert rule.query(OverlaidTree(tree, {GDN_LAYER: mended})).value is False


@pytest.mark.parametrize("defect", BACKEND_DEFECTS, ids=lambda defect: defect.identifier)
def test_a_source_in_another_form_is_open(defect: object) -> None:
    rule = next(entry for entry in BACKEND_DEFECTS if entry is defect)
    tree = real_stack("vllm", "0.33.0").tree
    other = {GDN_LAYER: "", "vllm/config/compilation.py": ""}
    assert not rule.query(OverlaidTree(tree, other)).understood


def test_the_missing_package_matters_where_it_is_missing() -> None:
    checkpoint = served_release(HEADLINE)
    for stack, matters in (
        (beside("0.33.0", "torch 2.14.0"), True),
        (beside("0.33.0", "flashinfer-python 0.7.2.post1"), False),
        (real_stack("vllm", "0.33.0"), False),
    ):
        found = backend_defects(stack, checkpoint, situation("h200", 4))
        assert {f.defect.identifier: f.applies for f in found}[PREFILL] is matters
