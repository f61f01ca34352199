"""Terminal, JSON and Markdown say the same, from the evidence alone."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from draftproof.evidence.json_report import ChainModel, to_json
from draftproof.evidence.markdown import to_markdown
from draftproof.evidence.report_models import render_json
from draftproof.evidence.schemas import SCHEMAS, schema_text
from draftproof.evidence.terminal import print_chain
from tests.evidence import examples

REPORTS = [examples.proven, examples.broken_config, examples.open_weights, examples.with_notes]
SCHEMA_FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def terminal(chain, width=80, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, highlight=False, markup=False)
    print_chain(console, chain)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("make", REPORTS)
def test_every_form_carries_the_verdict_of_the_chain_and_of_each_link(make):
    chain = make()
    text, markdown, parsed = (
        terminal(chain),
        to_markdown(chain),
        json.loads(to_json(chain)),
    )
    assert parsed["verdict"] == chain.verdict.value
    assert parsed["exit_code"] == chain.exit_code
    assert f"{chain.verdict.word}  {chain.summary[:1].upper()}{chain.summary[1:20]}" in text
    assert f"{chain.verdict.word}** " in markdown
    for report, model in zip(chain.links, parsed["links"], strict=True):
        assert model["verdict"] == report.verdict.value
        assert f"{report.link.number} {report.link.value}" in text
        assert f"## {report.link.number} {report.link.value}" in markdown


def test_the_terminal_shows_word_and_symbol_never_colour_alone():
    text = terminal(examples.broken_config())
    assert "✗ DISPROVED" in text
    assert "✓ PROVEN" in text
    assert "\x1b[" not in text


def test_a_terminal_without_unicode_gets_ascii():
    text = terminal(examples.broken_config(), encoding="ascii")
    assert "x DISPROVED" in text
    assert "+ PROVEN" in text


def test_the_terminal_shows_expected_observed_where_and_the_command_of_what_failed():
    text = terminal(examples.broken_config())
    assert "expected  15 tensors" in text
    assert "observed  14 tensors; missing mtp.fc.weight" in text
    assert "where     model.safetensors: mtp.fc.weight" in text
    assert "see: python -c 'print(1)'" in text


def test_links_that_were_not_run_are_named():
    chain = examples.proven()
    assert "Links not run: 3 code, 4 launch, 5 backend, 6 function, 7 speed" in terminal(chain)
    assert "- 6 function: It runs" in to_markdown(chain)
    assert "function" in json.loads(to_json(chain))["not_run"]


def test_a_long_command_stays_on_one_line():
    command = "python -c '" + "x" * 200 + "'"
    chain = examples.chain(
        examples.LinkReport(
            examples.Link.CONFIG, (examples.item(examples.Verdict.DISPROVED, command=command),), 0.0
        )
    )
    assert command in terminal(chain)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal_except_commands(width):
    text = terminal(examples.with_notes(), width=width)
    assert all(len(line) <= width for line in text.splitlines() if "see: " not in line)


def test_a_link_after_a_broken_one_is_shown_as_not_counting():
    chain = examples.broken_config()
    assert "does not count" in terminal(chain)
    assert "does not count" in to_markdown(chain)
    assert [link["counts"] for link in json.loads(to_json(chain))["links"]] == [
        True,
        False,
    ]


def test_warnings_appear_in_every_form():
    chain = examples.with_notes()
    for text in (terminal(chain), to_markdown(chain)):
        assert "WARN" in text
        assert "exclude list disagrees" in text
    parsed = json.loads(to_json(chain))
    assert parsed["links"][1]["warnings"][0]["severity"] == "warn"
    assert parsed["links"][1]["warnings"][0]["where"] == [{"file": "config.json", "field": "ignore"}]


def test_a_note_is_never_shown_with_the_command_of_another_place():
    elsewhere = examples.Location("loader.py", line=7)
    notes = (examples.warning("of the claim"), examples.warning("of another place", elsewhere))
    proven = examples.item(notes=notes, command="cat claim")
    text = terminal(examples.chain(examples.LinkReport(examples.Link.CONFIG, (proven,), 0.0)))
    assert "cat claim" in text.partition("of the claim")[2].partition("of another place")[0]
    assert "cat claim" not in text.partition("of another place")[2]


def test_every_form_says_what_it_does_not_prove():
    chain = examples.with_notes()
    assert "values outside the sample" in terminal(chain)
    assert "values outside the sample" in to_markdown(chain)
    assert "values outside the sample" in json.loads(to_json(chain))["does_not_prove"]


def test_text_from_a_checkpoint_does_not_become_markup():
    hostile = examples.item(observed="[red]<b>|x|</b>* `rm`\n# title")
    chain = examples.chain(examples.LinkReport(examples.Link.CONFIG, (hostile,), 0.0))
    markdown = to_markdown(chain)
    assert "\n# title" not in markdown
    assert "<b>" not in markdown.replace("\\<b>", "")
    assert "[red]<b>" in terminal(chain)


def test_an_unknown_verdict_carries_its_reason_in_json():
    parsed = json.loads(to_json(examples.open_weights()))
    assert parsed["links"][1]["items"][0]["reason"] == "nobody looked"
    assert "broken_at" not in parsed


@pytest.mark.parametrize(("name", "model"), SCHEMAS)
def test_the_published_schemas_are_those_of_the_models(name, model):
    command = "PYTHONPATH=src python -m draftproof.evidence.schemas docs/schemas"
    assert (SCHEMA_FOLDER / name).read_text(encoding="utf-8") == schema_text(model), f"run: {command}"


def test_a_report_round_trips_through_its_model():
    text = to_json(examples.with_notes())
    assert render_json(ChainModel.model_validate_json(text)) == text
