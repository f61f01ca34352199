"""`draftproof verify --stack`: links 3 to 5 beside the others, one stack or several."""

import json

import pytest

from draftproof.cli.main import run
from draftproof.evidence.comparison_json import ComparisonModel
from draftproof.evidence.json_report import ChainModel


def verify(capsys, *options, code=0):
    """The report of `verify tiny` as JSON."""
    assert run(["verify", "tiny", *options, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def words(report):
    return {link["link"]: link["verdict"] for link in report["links"]}


def test_a_stack_adds_links_3_and_4_and_says_what_the_chain_is_about(rules, sglang, capsys):
    report = verify(capsys, "--stack", sglang())
    assert list(words(report)) == ["config", "weights", "code", "launch"]
    deployment = report["subject"]["deployment"]
    assert (deployment["stack"], deployment["version"]) == ("SGLang", "0.5.12")
    assert "gpu" not in deployment
    assert report["not_run"] == ["backend", "function", "speed"]
    ChainModel.model_validate(report)


def test_a_gpu_adds_link_5(rules, sglang, capsys):
    report = verify(capsys, "--stack", sglang(), "--gpu", "h200", "--context", "4096")
    assert words(report)["backend"] == "proven"
    assert "H200" in report["subject"]["deployment"]["gpu"]


def test_a_gpu_without_a_stack_says_what_holds_in_any_and_leaves_kernels_open(capsys):
    report = verify(capsys, "--gpu", "h200", code=3)
    assert list(words(report)) == ["config", "weights", "backend"]
    items = {item["check"]: item["verdict"] for item in report["links"][2]["items"]}
    assert (items["kernels-chosen"], items["roofline"]) == ("unknown", "proven")


def test_a_broken_link_of_the_stack_breaks_the_chain(rules, sglang, capsys):
    rules.without_class = ("0.5.12",)
    report = verify(capsys, "--stack", sglang(), code=1)
    assert report["broken_at"] == "code"
    assert [link["counts"] for link in report["links"]] == [True, True, True, False]


def test_the_users_own_command_is_judged_instead_of_the_proposed_one(rules, sglang, capsys):
    rules.refused = ("--gone",)
    report = verify(capsys, "--stack", sglang(), "--args", "--gone 1 --tp 8", code=1)
    assert report["broken_at"] == "launch"
    command, situation = rules.judged[0], rules.situations[0]
    # Bare options are about the checkpoint that was named beside them.
    assert [flag.name for flag in command.flags] == ["--model-path", "--gone", "--tp"]
    assert command.stack.value == "sglang"
    assert situation.tensor_parallel == 8


def test_what_is_said_about_the_deployment_reaches_the_rules(rules, sglang, capsys):
    verify(
        capsys,
        *("--stack", sglang(), "--gpu", "h200", "--tp", "4", "--k", "2", "--context", "1000"),
        *("--concurrency", "5", "--kv-dtype", "fp8_e4m3", "--accept-length", "2.5", "--measured", "72"),
        code=1,  # four GPUs do not divide the two heads of `tiny`
    )
    situation = rules.situations[0]
    assert situation.gpu.key == "h200"
    assert (situation.tensor_parallel, situation.draft_tokens) == (4, 2)
    assert (situation.context, situation.concurrency) == (1000, 5)
    assert situation.cache_type.value == "fp8_e4m3"
    assert (situation.accept_length, situation.measured) == (2.5, 72.0)


def test_several_stacks_give_one_table_and_share_links_1_and_2(rules, sglang, capsys):
    rules.without_class = ("0.5.9",)
    report = verify(capsys, "--stack", f"{sglang('0.5.9')},{sglang('0.5.12')}", code=1)
    ComparisonModel.model_validate(report)
    assert report["kind"] == "comparison"
    assert report["columns"] == ["SGLang 0.5.9", "SGLang 0.5.12"]
    first = report["claims"][0]
    assert (first["check"], first["agreement"]) == ("draft-class", "different")
    assert [cell["verdict"] for cell in first["cells"]] == ["disproved", "proven"]
    assert report["chains"][0]["links"][0] == report["chains"][1]["links"][0]


def test_several_stacks_hold_only_when_every_one_does(rules, sglang, capsys):
    report = verify(capsys, "--stack", f"{sglang('0.5.9')},{sglang('0.5.12')}", code=0)
    assert report["verdict"] == "proven"
    assert report["summary"] == "holds in SGLang 0.5.9, SGLang 0.5.12"


def test_the_terminal_shows_several_stacks_side_by_side(rules, sglang, capsys):
    rules.without_class = ("0.5.9",)
    assert run(["verify", "tiny", "--stack", f"{sglang('0.5.9')},{sglang('0.5.12')}"]) == 1
    text = capsys.readouterr().out
    assert ["SGLang", "0.5.9", "SGLang", "0.5.12"] in [line.split() for line in text.splitlines()]
    assert "What differs" in text
    assert "Holds in SGLang 0.5.12; broken in SGLang 0.5.9" in text


@pytest.mark.parametrize("name", ["report.html", "report.htm", "report.md", "report.json"])
def test_a_report_file_has_the_form_of_its_name_for_several_stacks_too(rules, sglang, tmp_path, capsys, name):
    file = tmp_path / name
    stacks = f"{sglang('0.5.9')},{sglang('0.5.12')}"
    assert run(["verify", "tiny", "--stack", stacks, "--report", str(file)]) == 0
    start = {".html": "<!DOCTYPE html>", ".htm": "<!DOCTYPE html>", ".md": "# ", ".json": "{"}[file.suffix]
    assert file.read_text().startswith(start)


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--stack", "sglnag"], 2, "Did you mean sglang?"),
        (["--gpu", "rtx-pro-600"], 2, "rtx-pro-6000"),
        (["--sm", "120"], 2, "--memory and --bandwidth"),
        (["--tp", "0"], 2, "--tp"),
        (["--kv-dtype", "int4"], 2, "--kv-dtype"),
        (["--measured", "72"], 2, "--gpu"),
        (["--args", "--tp 8"], 2, "--stack"),
        (["--args", "vllm serve x --tensor-parallel-size 8", "--tp", "4"], 2, "disagree"),
        (["--args", "'"], 2, "quote"),
        (["--stack", "./nowhere"], 2, "nowhere"),
    ],
)
def test_wrong_options_are_one_line_before_any_work(options, code, named, capsys):
    assert run(["verify", "tiny", *options]) == code
    written = capsys.readouterr()
    assert named in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""


def test_the_command_names_the_stack_when_nothing_else_does(rules, capsys):
    assert run(["verify", "tiny", "--args", "vllm serve tiny"]) == 4
    assert "vLLM is not installed" in capsys.readouterr().err


def test_the_gpu_of_this_machine_has_to_be_there(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert run(["verify", "tiny", "--gpu", "auto"]) == 4
    assert "nvidia-smi" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("question", "link"), [("head_support", "code"), ("judge", "launch"), ("backends", "backend")]
)
def test_rules_that_fail_on_a_source_leave_their_link_open_and_the_others_standing(
    rules, sglang, capsys, monkeypatch, question, link
):
    def fails(*_: object) -> None:
        raise AttributeError("no such thing")

    monkeypatch.setattr(rules, question, fails)
    report = verify(capsys, "--stack", sglang(), "--gpu", "h200", code=3)
    opened = [found for found in report["links"] if found["verdict"] == "unknown"]
    assert opened[0]["link"] == link
    assert "AttributeError: no such thing" in opened[0]["summary"]
    assert "a defect in draftproof" in opened[0]["summary"]
    assert words(report)["weights"] == "proven"


def test_a_context_that_nobody_asked_for_stays_within_the_models_positions(rules, sglang, capsys):
    verify(capsys, "--stack", sglang())
    verify(capsys, "--stack", sglang(), "--context", "9999")
    assert [situation.context for situation in rules.situations] == [4096, 9999]
