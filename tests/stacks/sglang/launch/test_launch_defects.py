"""Known launch defects are found in the versions that have them, and not in repaired copies."""

from __future__ import annotations

import pytest

from draftproof.stacks.defect import Defect, DefectLink
from draftproof.stacks.sglang.launch.launch_defects import DEFECTS
from draftproof.stacks.sglang.launch.options import SERVER_ARGS
from tests.support.sglang_launch import HEADLINE, START, TRIPLE, VERSIONS, changed, judged, situation, tree_of

MAMBA = "sglang/srt/arg_groups/mamba_hook.py"
MODELS = "sglang/srt/arg_groups/model_hook.py"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"
POOLS = "sglang/srt/mem_cache/kv_cache_configurator.py"

_RAW = 'if self.speculative_algorithm == "EAGLE":\n                self.enable_multi'
_BOTH = 'if self.speculative_algorithm in ("EAGLE", "NEXTN"):\n                self.enable_multi'
_TOKENS = "and self.speculative_num_draft_tokens is None\n                )"
_INTERVAL = "assert view.mamba_track_interval >= view.speculative_num_draft_tokens"
_OFF = '            declared["disable_overlap_schedule"] = True\n'
_UNSET = "            self.speculative_draft_model_quantization = None\n"
_COLLECT = "    model_overrides = collect_model_override_declarations("
_EARLY = "or self.speculative_eagle_topk is not None\n                    )\n                ):"

REPAIRED = {
    # one text of one file, and what mends it
    "sglang-nextn-is-not-eagle": ("0.5.9", SERVER_ARGS, _RAW, _BOTH),
    "sglang-partial-triple": ("0.5.9", SERVER_ARGS, _TOKENS, f"{_TOKENS}, 'give all three'"),
    "sglang-track-interval-bare-assert": ("0.5.23", MAMBA, _INTERVAL, f"{_INTERVAL}, 'too many'"),
    "sglang-overlap-lost-in-silence": (
        "0.5.23",
        OVERRIDES,
        _OFF,
        f"{_OFF}            logger.warning('off')\n",
    ),
    "sglang-draft-unquant-ignored": (
        "0.5.9",
        SERVER_ARGS,
        _UNSET,
        f"{_UNSET}            self._kept = True\n",
    ),
    "sglang-admission-cut": ("0.5.9", SERVER_ARGS, "self.max_running_requests = 48", "pass"),
    "sglang-adaptive-budget": (
        "0.5.23",
        POOLS,
        "* get_spec().speculative_num_draft_tokens",
        "* max_speculative_num_draft_tokens()",
    ),
    "sglang-attention-before-branches": (
        "0.5.9",
        SERVER_ARGS,
        _EARLY,
        _EARLY.replace("self.speculative_eagle_topk is not None", "True"),
    ),
    "sglang-attention-before-states": (
        "0.5.23",
        MODELS,
        _COLLECT,
        f"    run_post_process_pass(server_args, _mamba_radix_cache_resolution)\n{_COLLECT}",
    ),
}


def of(identifier: str) -> Defect:
    return next(defect for defect in DEFECTS if defect.identifier == identifier)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_defect_is_found_where_it_was_observed_and_nowhere_else(version: str) -> None:
    tree = tree_of(version)
    for defect in DEFECTS:
        reading = defect.query(tree)
        if version in defect.observed_in:
            assert reading.value is True, defect.identifier
            assert reading.places, defect.identifier
        else:
            assert reading.value is not True, defect.identifier


@pytest.mark.parametrize("identifier", [defect.identifier for defect in DEFECTS])
def test_a_repaired_copy_comes_out_clean(identifier: str) -> None:
    version, *edit = REPAIRED[identifier]
    file, old, new = edit
    reading = of(identifier).query(changed(version, (file, old, new)))
    assert reading.understood, reading
    assert reading.value is False, reading


UNRECOGNISABLE = [each.identifier for each in DEFECTS if each.identifier != "sglang-adaptive-budget"]
"""For that one the version's other files say whether there is anything adaptive."""


@pytest.mark.parametrize("identifier", UNRECOGNISABLE)
def test_a_source_that_is_not_recognised_stays_open(identifier: str) -> None:
    groups = [(file, "", "") for file in tree_of("0.5.23").walk("sglang/srt/arg_groups")]
    tree = changed("0.5.23", *groups, (SERVER_ARGS, "", "x = 1\n"))
    assert not of(identifier).query(tree).understood


def test_only_what_concerns_checkpoint_and_command_applies() -> None:
    def applying(text: str, release: str = HEADLINE) -> set[str]:
        judgement = judged("0.5.12", text, situation("b200"), release)
        return {finding.defect.identifier for finding in judgement.defects if finding.applies}

    explicit = f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE}"
    assert applying(f"{explicit} --max-running-requests 64") == set()
    assert applying(explicit) == {"sglang-admission-cut"}
    assert applying(f"{START} --speculative-algorithm NEXTN --max-running-requests 8") == {
        "sglang-attention-before-branches"
    }
    assert "sglang-draft-unquant-ignored" in applying(f"{explicit} --speculative-draft-model-quant unquant")
    assert "sglang-nextn-is-not-eagle" in applying(explicit, "XiaomiMiMo_MiMo-V2.6-Flash-RL")


def test_what_is_chosen_before_the_state_cache_concerns_commands_without_speculation_on_sm100() -> None:
    """The same state cache in the end, and another backend: named, the cache is known in time."""
    name = "sglang-attention-before-states"

    def applying(text: str, key: str = "b200") -> set[str]:
        found = judged("0.5.23", text, situation(key)).defects
        return {finding.defect.identifier for finding in found if finding.applies}

    def in_force(text: str) -> dict[str, str]:
        return {field: value for field, value, _ in judged("0.5.23", text).resolved.options}

    alone, named = f"{START} --tp 8", f"{START} --tp 8 --mamba-radix-cache-strategy extra_buffer"
    assert name in applying(alone)
    assert name not in applying(named)
    assert name not in applying(f"{alone} --speculative-algorithm NEXTN {TRIPLE}")
    assert name not in applying(f"{alone} --attention-backend trtllm_mha")
    assert name not in applying(alone, "rtx-pro-6000")
    first, second = in_force(alone), in_force(named)
    assert first["mamba_radix_cache_strategy"] == second["mamba_radix_cache_strategy"] == "extra_buffer"
    assert (first["attention_backend"], first["page_size"]) == ("triton", "1")
    assert (second["attention_backend"], second["page_size"]) == ("trtllm_mha", "64")


def test_the_table_is_complete() -> None:
    assert len({defect.identifier for defect in DEFECTS}) == len(DEFECTS)
    assert all(
        defect.link is DefectLink.LAUNCH and defect.consequence and defect.workaround for defect in DEFECTS
    )
