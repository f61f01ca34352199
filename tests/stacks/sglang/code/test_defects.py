"""Known defects: the versions that are said to have one do, and a repaired copy comes out clean."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from draftproof.stacks.defect import Defect
from draftproof.stacks.sglang.code.defect_queries import (
    DEEPSEEK_HEAD,
    DEEPSEEK_LOADER,
    MODEL_RUNNER,
    MODELOPT,
    NEXT_HEAD,
    QWEN_HEAD,
    WEIGHT_FILES,
)
from draftproof.stacks.sglang.code.defects import DEFECTS
from draftproof.stacks.sglang.code.noticing import LOADER
from draftproof.stacks.sglang.code.registry import MODELS, REGISTRY
from tests.support.edited_tree import Edit, edited_tree, method_replaced, replaced, substituted
from tests.support.real_stacks import real_stack

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")
MIMO_HEAD = f"{MODELS}/mimo_v2_nextn.py"

REPAIRS: Mapping[str, Mapping[str, Edit]] = {
    "sglang-load-result-dropped": {
        LOADER: replaced(
            "        model.load_weights(weights)\n",
            "        loaded = model.load_weights(weights)\n"
            "        if loaded != set(dict(model.named_parameters())):\n"
            "            raise ValueError(loaded)\n",
        )
    },
    "sglang-unindexed-head-lost": {
        WEIGHT_FILES: method_replaced(
            "maybe_add_mtp_safetensors", "return add_every_head(hf_weights_files, hf_folder)"
        )
    },
    "sglang-fused-names-unknown": {
        QWEN_HEAD: replaced(
            "class Qwen3_5ForCausalLMMTP(nn.Module):\n",
            "class Qwen3_5ForCausalLMMTP(nn.Module):\n"
            "    packed_modules_mapping = Qwen3_5ForCausalLM.packed_modules_mapping\n",
        )
    },
    "sglang-packed-head-made-plain": {QWEN_HEAD: replaced('"modelopt_fp4"', "NO_SUCH_METHOD")},
    "sglang-next-head-follows-trunk": {
        NEXT_HEAD: replaced(
            "        self.quant_config = quant_config\n",
            '        if quant_config and quant_config.get_name() == "modelopt_fp4":\n'
            "            quant_config = None\n"
            "        self.quant_config = quant_config\n",
        )
    },
    "sglang-next-head-out-of-reach-of-lists": {
        NEXT_HEAD: replaced('add_prefix("model", prefix)', 'add_prefix("mtp", prefix)')
    },
    "sglang-import-error-swallowed": {
        REGISTRY: replaced('logger.warning(f"Ignore import error when loading {name}: {e}")', "raise"),
    },
    "sglang-quark-layer-61": {DEEPSEEK_HEAD: replaced('"model.layers.61"', "HEAD_LAYER")},
    "sglang-one-head-layer-asserted": {
        DEEPSEEK_LOADER: replaced('assert num_nextn_layers == 1, "Only 1 nextn layer is supported"', "pass")
    },
    "sglang-mimo-layers-fall-together": {
        MIMO_HEAD: method_replaced("map_model_name_to_mtp_param_name", "return name")
    },
    "sglang-log-names-the-checkpoint": {MODEL_RUNNER: replaced("quant_str", "built_precision")},
    "sglang-tensor-passed-over-silently": {
        QWEN_HEAD: method_replaced("load_weights", "return load_all(self, weights)", "Qwen3_5ForCausalLMMTP")
    },
    "sglang-quark-head-by-list": {
        QWEN_HEAD: substituted(
            r'(get_name\(\) == "quark":\n).*?(?=    return quant_config\n\n)',
            r"\1        return quant_config.for_tensors(checkpoint)\n",
        )
    },
    "sglang-quark-any-entry-makes-plain": {
        QWEN_HEAD: replaced(
            'isinstance(layer, str) and layer.startswith("mtp.")',
            'layer.startswith("mtp.") and "mlp.experts" in layer',
        )
    },
    "sglang-missing-shard-unnoticed": {
        WEIGHT_FILES: substituted(
            r"(def filter_duplicate_safetensors_files\(.*?\) -> List\[str\]:\n)",
            r"\1    if missing(index_file):\n        raise RuntimeError(index_file)\n",
        )
    },
    "sglang-list-of-parts-missed": {
        MODELOPT: replaced(
            'fused_patterns = {"q_a_proj"', 'fused_patterns = {*self.packed_modules_mapping, "q_a_proj"'
        )
    },
}

OPEN_WHEN_REPAIRED = {"sglang-quark-head-by-list"}
"""A rule that looks at the tensors has a form that the query cannot know: it says so."""


def by_identifier(defect: Defect) -> str:
    return defect.identifier


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_exactly_the_defects_that_it_is_said_to_have(defect: Defect, version: str) -> None:
    present = defect.query(real_stack("sglang", version).tree)
    assert present.understood, present.sentence
    assert present.value is (version in defect.observed_in), present.sentence
    assert all(place.line > 0 for place in present.places)
    assert present.places


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
def test_a_repaired_copy_comes_out_clean(defect: Defect) -> None:
    tree = real_stack("sglang", defect.observed_in[-1]).tree
    repaired = defect.query(edited_tree(tree, REPAIRS[defect.identifier]))
    if defect.identifier in OPEN_WHEN_REPAIRED:
        assert not repaired.understood, repaired.sentence
    else:
        assert repaired.understood, repaired.sentence
        assert repaired.value is False, repaired.sentence


@pytest.mark.parametrize("defect", DEFECTS, ids=by_identifier)
def test_a_source_without_the_place_is_not_understood(defect: Defect) -> None:
    tree = real_stack("sglang", "0.5.23").tree
    files = {place.file for place in defect.query(tree).places}
    gone = defect.query(edited_tree(tree, dict.fromkeys(files)))
    assert not gone.understood
    assert gone.value is None
    assert gone.sentence.startswith("looked for")


def test_every_defect_is_described_and_has_a_repair() -> None:
    identifiers = [defect.identifier for defect in DEFECTS]
    assert len(set(identifiers)) == len(identifiers)
    assert set(REPAIRS) == set(identifiers)
    for defect in DEFECTS:
        assert defect.title
        assert defect.looks_for
        assert defect.consequence
        assert defect.upstream
