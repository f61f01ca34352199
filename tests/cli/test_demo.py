"""`draftproof demo` and `doctor` on the embedded checkpoint: the whole story, and a healthy machine."""

import json

import pytest

from draftproof.cli.main import run


@pytest.fixture(scope="module")
def story():
    """One short demo for all tests of this file: exit code and JSON report."""
    import contextlib
    import io

    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        code = run(["demo", "--json", "-n", "24"])
    return code, json.loads(written.getvalue())


def test_the_embedded_checkpoint_is_proven_at_every_link_that_the_demo_walks(story):
    code, report = story
    assert (code, report["verdict"]) == (0, "proven")
    assert [link["link"] for link in report["links"]] == ["config", "weights", "function"]


def test_its_text_is_the_same_in_both_arms_greedily_and_sampled(story):
    items = {item["check"]: item for item in story[1]["links"][2]["items"]}
    assert items["same-text-0"]["verdict"] == items["same-text-0.8"]["verdict"] == "proven"


def test_drafts_are_accepted_at_every_position(story):
    items = {item["check"]: item for item in story[1]["links"][2]["items"]}
    assert items["drafts-accepted"]["verdict"] == "proven"


def test_the_story_shows_prompts_answers_figures_and_the_verdict(capsys):
    assert run(["demo", "-n", "16", "--k", "2"]) == 0
    text = capsys.readouterr().out
    for part in ("1 config", "2 weights", "6 function", "same text", "accept length", "AL", "PROVEN"):
        assert part in text


def test_a_k_that_cannot_be_is_refused_in_one_line(capsys):
    assert run(["demo", "--k", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_doctor_finds_everything_required(capsys):
    assert run(["doctor", "--json"]) == 0
    checks = {
        (check["area"], check["name"]): check for check in json.loads(capsys.readouterr().out)["checks"]
    }
    assert checks["kernel", "linear"]["state"] == "ok"
    assert checks["checkpoint", "tiny"]["state"] == "ok"


def test_a_failed_required_check_makes_the_doctor_fail(monkeypatch, capsys):
    from draftproof.cli import kernel_checks

    def broken():
        raise ArithmeticError("differs from the definition by 1")

    monkeypatch.setattr(kernel_checks, "KERNEL_CHECKS", (("linear", lambda: "torch", broken),))
    assert run(["doctor"]) == 4
    assert "kernel linear" in capsys.readouterr().out
