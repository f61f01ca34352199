"""Defects of the choice of kernels: versions said to have one do, and a mended copy comes out clean."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from draftproof.stacks.sglang.backend.attention_kernels import REGISTRY
from draftproof.stacks.sglang.backend.backend_defect_queries import selectors_of
from draftproof.stacks.sglang.backend.backend_defects import BACKEND_DEFECTS, BackendDefect, shown_defects
from draftproof.stacks.sglang.backend.delta_net import FLASHINFER_KERNELS
from draftproof.stacks.sglang.backend.quantised_methods import FP8_CHOICE, MODELOPT
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.launch.in_force import ValuesInForce
from tests.support.edited_tree import Edit, edited_tree, replaced
from tests.support.real_stacks import real_stack
from tests.support.sglang_kernels import FP8, HEADLINE, VERSIONS, checkpoint_named
from tests.support.sglang_launch import situation

TRTLLM_BY_DEFAULT = "                moe_runner_backend = MoeRunnerBackend.FLASHINFER_TRTLLM\n"
REPAIRS: Mapping[str, tuple[str, Mapping[str, Edit]]] = {
    "sglang-packed-experts-without-kernels": (
        "0.5.23",
        {
            MODELOPT: replaced(
                TRTLLM_BY_DEFAULT,
                "                moe_runner_backend = MoeRunnerBackend.FLASHINFER_CUTLASS\n",
            )
        },
    ),
    "sglang-packed-experts-in-another-layout": (
        "0.5.23",
        {
            MODELOPT: replaced(
                "        self.enable_flashinfer_trtllm_moe = (\n            get_moe_runner_backend()",
                "        self.enable_flashinfer_trtllm_moe = (\n"
                "            get_moe_runner_backend().is_auto() or get_moe_runner_backend()",
            )
        },
    ),
    "sglang-runner-accepted-without-kernels": (
        "0.5.23",
        {
            MODELOPT: replaced(
                "        self._moe_runner_backend = moe_runner_backend\n\n        if get_moe_a2a_backend()",
                "        if moe_runner_backend.is_flashinfer_trtllm() and not get_platform().is_sm100:\n"
                "            raise ValueError('these kernels need SM100')\n\n"
                "        self._moe_runner_backend = moe_runner_backend\n\n        if get_moe_a2a_backend()",
            )
        },
    ),
    "sglang-deepgemm-unasked": (
        "0.5.9",
        {
            FP8_CHOICE: replaced(
                "    if deep_gemm_wrapper.ENABLE_JIT_DEEPGEMM:\n        return deepgemm",
                "    if deep_gemm_wrapper.ENABLE_JIT_DEEPGEMM and get_device_capability()[0] < 12:\n"
                "        return deepgemm",
            )
        },
    ),
    "sglang-hybrid-default-refused": (
        "0.5.9",
        {
            REGISTRY: replaced(
                'runner.server_args.attention_backend == "triton"\n',
                'runner.server_args.attention_backend in ("triton", "flashinfer")\n',
            )
        },
    ),
    "sglang-verify-without-kernel": (
        "0.5.23",
        {FLASHINFER_KERNELS: replaced("sm_major in (9, 10)", "sm_major in (9, 10, 12)")},
    ),
    "sglang-state-rule-by-option": (
        "0.5.23",
        {
            "sglang/srt/arg_groups/attention_hook.py": replaced(
                '        and cfg.mamba_ssm_dtype == "bfloat16"\n',
                '        and (cfg.mamba_ssm_dtype or of_checkpoint(hf_config)) == "bfloat16"\n',
            )
        },
    ),
}


@pytest.fixture(scope="module")
def sources() -> dict[str, Selectors]:
    return {version: selectors_of(real_stack("sglang", version).tree) for version in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("entry", BACKEND_DEFECTS, ids=lambda entry: entry.defect.identifier)
def test_it_is_in_the_versions_where_it_was_observed(
    entry: BackendDefect, version: str, sources: dict[str, Selectors]
) -> None:
    reading = entry.look(sources[version])
    assert reading.understood, reading.sentence
    assert reading.value is (version in entry.defect.observed_in), reading.sentence
    if reading.value:
        assert reading.places


@pytest.mark.parametrize("entry", BACKEND_DEFECTS, ids=lambda entry: entry.defect.identifier)
def test_a_mended_copy_comes_out_clean(entry: BackendDefect) -> None:
    version, edits = REPAIRS[entry.defect.identifier]
    assert version in entry.defect.observed_in
    reading = entry.defect.query(edited_tree(real_stack("sglang", version).tree, edits))
    assert reading.understood, reading.sentence
    assert reading.value is False, reading.sentence


@pytest.mark.parametrize("entry", BACKEND_DEFECTS, ids=lambda entry: entry.defect.identifier)
def test_a_source_of_another_form_leaves_it_open_or_absent(entry: BackendDefect) -> None:
    tree = edited_tree(
        real_stack("sglang", "0.5.23").tree,
        {
            MODELOPT: lambda _: "",
            FP8_CHOICE: lambda _: "",
            REGISTRY: lambda _: "",
            FLASHINFER_KERNELS: lambda _: "",
        }
        | {"sglang/srt/arg_groups/attention_hook.py": lambda _: ""},
    )
    reading = entry.defect.query(tree)
    assert not reading.understood
    assert reading.sentence


def shown(name: str, gpu: str, **fields: object) -> list[str]:
    values = ValuesInForce(fields, {})
    found = shown_defects(checkpoint_named(name), situation(gpu), values)
    return [entry.defect.identifier for entry in found]


def test_it_is_looked_for_where_it_would_show() -> None:
    packed = "sglang-packed-experts-without-kernels"
    assert packed in shown(HEADLINE, "rtx-pro-6000", moe_runner_backend="auto")
    assert packed not in shown(HEADLINE, "rtx-pro-6000", moe_runner_backend="flashinfer_cutlass")
    assert packed not in shown(HEADLINE, "b200", moe_runner_backend="auto")
    assert packed not in shown(FP8, "rtx-pro-6000", moe_runner_backend="auto")
    asked_for = shown(HEADLINE, "rtx-pro-6000", moe_runner_backend="flashinfer_trtllm")
    assert "sglang-runner-accepted-without-kernels" in asked_for
    assert "sglang-deepgemm-unasked" in shown(FP8, "rtx-pro-6000", fp8_gemm_runner_backend="auto")
