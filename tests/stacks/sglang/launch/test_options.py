"""SGLang's options are read from where each version declares them."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.stacks.command.binding import Match, look_up
from draftproof.stacks.launch_facts import ValueKind
from draftproof.stacks.sglang.launch.declared_option import Arity, DeclaredOption
from draftproof.stacks.sglang.launch.options import ArgumentTable, read_arguments, read_options
from draftproof.stacks.source import SourceTree
from tests.support.real_stacks import real_stack

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")


def arguments(version: str) -> ArgumentTable:
    table = read_arguments(real_stack("sglang", version).tree).value
    assert table is not None
    return table


def option(version: str, name: str) -> DeclaredOption:
    declared = arguments(version).declaration(name)
    assert declared is not None
    return declared


@pytest.mark.parametrize(("version", "count"), [("0.5.9", 331), ("0.5.12", 387), ("0.5.23", 531)])
def test_every_declaration_of_a_real_version_is_read(version: str, count: int) -> None:
    table = arguments(version)
    assert len(table.declared) == count
    names = [name for entry in table.declared for name in (entry.option.name, *entry.option.aliases)]
    assert len(names) == len(set(names))
    text = {
        file: real_stack("sglang", version).tree.text(file).splitlines()
        for file in {entry.option.place.file for entry in table.declared}
    }
    for entry in table.declared:
        line = text[entry.option.place.file][entry.option.place.line - 1]
        assert "add_argument(" in line or entry.field in line, entry


def test_the_algorithm_has_choices_only_where_its_declaration_says_so() -> None:
    assert option("0.5.9", "--speculative-algorithm").option.choices == (
        "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM",
    )  # fmt: skip
    assert option("0.5.12", "--speculative-algorithm").option.choices == ()
    assert option("0.5.23", "--speculative-algorithm").option.choices == ()
    assert option("0.5.9", "--speculative-algorithm").option.place.line == 3924
    assert option("0.5.12", "--speculative-algorithm").option.place.line == 5785


@pytest.mark.parametrize("version", VERSIONS)
def test_kinds_defaults_and_aliases(version: str) -> None:
    steps = option(version, "--speculative-num-steps")
    assert (steps.option.kind, steps.option.default, steps.field) == (
        ValueKind.INTEGER, "None", "speculative_num_steps",
    )  # fmt: skip
    assert option(version, "--model").option.name == "--model-path"
    assert option(version, "--model").required
    assert option(version, "--tp-size").field == "tp_size"
    assert option(version, "--trust-remote-code").option.kind is ValueKind.FLAG
    assert "flashinfer_cutlass" in option(version, "--moe-runner-backend").option.choices
    assert option(version, "--speculative-accept-threshold-single").option.kind is ValueKind.NUMBER
    assert option(version, "--speculative-accept-threshold-single").option.default == "1.0"


def test_the_short_name_of_tensor_parallelism_is_only_a_beginning() -> None:
    found, match, _ = look_up("--tp", arguments("0.5.23").table)
    assert (found and found.name, match) == ("--tp-size", Match.ABBREVIATION)


def test_an_option_that_was_renamed_is_under_its_own_name_in_each_version() -> None:
    assert option("0.5.12", "--mamba-scheduler-strategy").field == "mamba_scheduler_strategy"
    assert arguments("0.5.23").declaration("--mamba-scheduler-strategy") is None
    assert "extra_buffer_lazy" in option("0.5.23", "--mamba-radix-cache-strategy").option.choices


def test_retired_options_say_what_to_use() -> None:
    assert option("0.5.23", "--enable-dp-attention").option.deprecated == "use --attn-dp-size <dp-size>"
    assert option("0.5.23", "--monokernel-backend").arity is Arity.ONE
    assert "swa-full-tokens-ratio" in option("0.5.12", "--hybrid-kvcache-ratio").option.deprecated


def test_a_flag_with_two_spellings_knows_the_negative_one() -> None:
    declared = option("0.5.23", "--no-speculative-enable-w4a4-mxfp4-megamoe")
    assert declared.negative == "--no-speculative-enable-w4a4-mxfp4-megamoe"
    assert declared.option.name == "--speculative-enable-w4a4-mxfp4-megamoe"


def test_choices_that_the_source_computes_are_not_taken_for_any() -> None:
    assert option("0.5.23", "--reasoning-parser").unread == ("choices",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "no readable"),
        ("class Other:\n    pass\n", "there is none"),
        ("class ServerArgs:\n    def add_cli_args(parser):\n        register(parser)\n", "too few"),
        ("def (", "no valid Python"),
    ],
)
def test_a_form_that_is_not_known_is_not_understood(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    file = tmp_path / "sglang/srt/server_args.py"
    file.parent.mkdir(parents=True)
    if content is not None:
        file.write_text(content)
    reading = read_options(SourceTree(tmp_path))
    assert not reading.understood
    assert sentence in reading.sentence
