"""One thing changed in a real source breaks the claim about launching that rests on it, with its line."""

from __future__ import annotations

from draftproof.stacks.launch_facts import Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.model_view import MODEL_CONFIG
from draftproof.stacks.sglang.launch.options import SERVER_ARGS
from draftproof.stacks.sglang.launch.resolution import PIPELINE
from tests.support.sglang_launch import START, TRIPLE, changed, findings, judged, ruled

OLD = f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE} --mamba-scheduler-strategy extra_buffer"
NEW = f"{START} --tp 8 --speculative-algorithm NEXTN {TRIPLE}"
SPEC_FIELDS = "sglang/srt/arg_groups/fields/spec.py"
HOOK = "sglang/srt/arg_groups/speculative_hook.py"


def test_an_alias_that_was_renamed_is_refused() -> None:
    tree = changed(
        "0.5.12", (SERVER_ARGS, 'speculative_algorithm == "NEXTN" or', 'speculative_algorithm == "NEXT" or')
    )
    judgement = judged(tree, OLD)
    broken = [entry for entry in findings(judgement, "algorithm-accepted") if entry.ruling is Ruling.BREAKS]
    assert "Unknown speculative algorithm name: NEXTN" in broken[0].observed
    assert broken[0].places[0].file.startswith("sglang/srt/speculative/")
    assert not judgement.resolved.algorithm.is_found


def test_an_alias_that_left_the_choices_is_refused() -> None:
    tree = changed("0.5.9", (SERVER_ARGS, '"EAGLE3", "NEXTN", "STANDALONE"', '"EAGLE3", "STANDALONE"'))
    (broken,) = [
        entry for entry in findings(judged(tree, OLD), "option-value") if entry.ruling is Ruling.BREAKS
    ]
    assert "NEXTN is none of its choices: EAGLE, EAGLE3, STANDALONE" in broken.observed
    assert broken.places == (Place(SERVER_ARGS, 3924),)


def test_an_option_that_was_renamed_leads_to_its_new_name() -> None:
    tree = changed(
        "0.5.23", (SPEC_FIELDS, "    speculative_num_steps: A[", "    speculative_number_steps: A[")
    )
    broken = [
        entry for entry in findings(judged(tree, NEW), "option-exists") if entry.ruling is Ruling.BREAKS
    ]
    assert [(entry.subject, entry.places) for entry in broken] == [
        ("--speculative-num-steps", (Place(SPEC_FIELDS, 58),))
    ]
    assert "--speculative-number-steps" in broken[0].remedy


def test_an_option_that_was_removed_does_not_exist() -> None:
    tree = changed("0.5.9", (SERVER_ARGS, '"--speculative-eagle-topk"', '"--something-else"'))
    (broken,) = [
        entry for entry in findings(judged(tree, OLD), "option-exists") if entry.ruling is Ruling.BREAKS
    ]
    assert broken.subject == "--speculative-eagle-topk"


def test_speculation_that_a_handler_switches_off_is_seen_with_its_line() -> None:
    body = "    def _handle_tokenizer_batching(self):\n"
    tree = changed("0.5.12", (SERVER_ARGS, body, f"{body}        self.speculative_algorithm = None\n"))
    resolved = judged(tree, OLD).resolved
    assert resolved.algorithm.understood
    assert not resolved.algorithm.is_found
    (place,) = resolved.algorithm.places
    assert "self.speculative_algorithm = None" in tree.text(SERVER_ARGS).splitlines()[place.line - 1]


def test_steps_that_a_handler_lowers_are_a_change_and_the_drafts_in_force() -> None:
    body = "    def _handle_tokenizer_batching(self):\n"
    tree = changed("0.5.12", (SERVER_ARGS, body, f"{body}        self.speculative_num_steps = 1\n"))
    resolved = judged(tree, OLD).resolved
    assert resolved.draft_tokens.value == 1
    assert "steps become 1, where 3 was given" in resolved.changed[-1].sentence


def test_a_path_that_no_longer_falls_back_leaves_the_head_without_weights() -> None:
    tree = changed(
        "0.5.12", (MODEL_CONFIG, "model_path=model_path or server_args.model_path", "model_path=model_path")
    )
    reading = judged(tree, OLD).resolved.draft_path
    assert reading.understood
    assert not reading.is_found
    assert reading.places[0].file == MODEL_CONFIG


def test_a_resolution_that_moved_is_open_and_never_proven() -> None:
    tree = changed("0.5.23", (PIPELINE, "def run_resolution_pipeline(", "def run_the_pipeline("))
    judgement = judged(tree, NEW)
    (start,) = findings(judgement, "starts")
    assert start.ruling is Ruling.UNKNOWN
    assert not judgement.resolved.algorithm.understood
    assert not judgement.resolved.changed[0].understood


def test_a_broken_file_is_open_with_its_line() -> None:
    judgement = judged(changed("0.5.12", (SERVER_ARGS, "", "x = (\n")), OLD)
    (finding,) = ruled(judgement, Ruling.UNKNOWN)
    assert "sglang/srt/server_args.py:1 is no valid Python" in finding.observed
    assert not judgement.resolved.algorithm.understood


def test_a_broken_handler_is_open_with_its_line() -> None:
    judgement = judged(changed("0.5.23", (HOOK, "", "def broken(:\n")), NEW)
    (start,) = findings(judgement, "starts")
    assert start.ruling is Ruling.UNKNOWN
    assert start.places[0].file == HOOK
