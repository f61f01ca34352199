"""`draftproof generate`: the text does not depend on speculation, and bad input is one line."""

import io
import json
import os
import subprocess
import sys

import pytest

from draftproof.cli.main import run

PROMPT = "def add(a, b):"


@pytest.fixture
def generate(moe_checkpoint, capsys):
    def call(*options, prompt=PROMPT):
        code = run(["generate", str(moe_checkpoint.folder), prompt, "-n", "24", "--ignore-eos", *options])
        written = capsys.readouterr()
        return code, written.out, written.err

    return call


def test_text_goes_to_stdout_and_figures_to_stderr(generate):
    code, text, figures = generate()
    assert code == 0
    assert text.strip()
    assert "24 tokens" in figures
    assert "accept length" in figures


@pytest.mark.parametrize("sampling", [[], ["--temperature", "0.8", "--seed", "5", "--top-p", "0.9"]])
def test_the_text_is_the_same_with_and_without_speculation(generate, sampling):
    _, plain, _ = generate("--drafter", "none", *sampling)
    for k in ("1", "3", "5"):
        assert generate("--drafter", "nextn", "--k", k, *sampling)[1] == plain


def test_the_same_seed_gives_the_same_text_and_another_seed_another(generate):
    texts = [generate("--temperature", "1.0", "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_a_seed_that_was_not_given_is_printed_and_repeats_the_text(generate):
    _, text, figures = generate("--temperature", "1.0")
    seed = figures.strip().rpartition("seed ")[2]
    assert generate("--temperature", "1.0", "--seed", seed)[1] == text


def test_json_says_what_was_generated_and_how(generate):
    code, text, _ = generate("--json")
    report = json.loads(text)
    assert code == 0
    assert report["kind"] == "generation"
    assert len(report["token_ids"]) == 24
    assert report["finish_reason"] == "length"
    assert report["verify_passes"] > 0


def test_the_config_in_force_is_shown_without_loading_anything(capsys):
    assert run(["generate", "no-such-folder/x", "x", "--dry-run", "--k", "2", "--seed", "1"]) == 0
    assert "draft_tokens" in capsys.readouterr().out


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(generate):
    _, plain, _ = generate()
    stop = plain[6:9]
    _, text, _ = generate("--stop", stop)
    assert text.rstrip("\n") == plain[: plain.index(stop)].rstrip("\n")


def test_the_prompt_can_come_from_standard_input(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(PROMPT))
    assert generate(prompt="-")[1] == generate()[1]


BAD_INPUT = [
    (["--k", "0"], 2, "K"),
    (["--k", "-1"], 2, "K"),
    (["--k", "99"], 2, "K"),
    (["--temperature", "nan"], 2, "temperature"),
    (["--temperature", "-1"], 2, "temperature"),
    (["--top-p", "0"], 2, "top_p"),
    (["--max-length", "999999999"], 2, "context"),
    (["--max-length", "4"], 2, "context"),
    (["--device", "cuda:99"], 4, "cuda:99"),
    (["--drafter", "crystal-ball"], 2, "drafter"),
    (["--thinking"], 2, "--chat"),
    (["--threads", "0"], 2, "threads"),
    (["--threads", "100000"], 2, "threads"),
]


@pytest.mark.parametrize(("options", "code", "named"), BAD_INPUT, ids=[" ".join(row[0]) for row in BAD_INPUT])
def test_bad_input_is_one_line_that_names_it(generate, options, code, named):
    got, text, error = generate(*options, prompt="a longer prompt than four tokens can hold, surely")
    assert (got, text) == (code, "")
    assert error.count("\n") == 1
    assert named in error
    assert "Traceback" not in error
    assert "Value error" not in error


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_empty_prompt_is_refused(generate, options):
    code, _, error = generate(*options, prompt="")
    assert code == 2
    assert "prompt" in error


def test_a_prompt_that_is_no_text_is_refused(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    for prompt in ("-", "\udcff"):
        code, text, error = generate(prompt=prompt)
        assert (code, text) == (2, "")
        assert "UTF-8" in error


def test_it_survives_a_standard_output_that_is_closed(moe_checkpoint, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["generate", str(moe_checkpoint.folder), PROMPT, "-n", "3"]) == 0
    assert "error" not in capsys.readouterr().err


def test_it_survives_a_reader_that_goes_away(moe_checkpoint):
    command = (
        f'"{sys.executable}" -m draftproof.cli.main generate "{moe_checkpoint.folder}" x -n 300 --ignore-eos'
    )
    shell = subprocess.run(
        ["bash", "-c", f"{command} | head -c 5"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ,
    )
    assert "Traceback" not in shell.stderr
