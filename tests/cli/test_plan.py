"""`draftproof plan`: a command that can be pasted, a reason for each word, and its own judgement."""

import json
import shlex

import pytest

from draftproof.cli.main import run
from draftproof.evidence.plan_json import PlanModel


def plan(capsys, *options, code=0):
    assert run(["plan", "tiny", *options]) == code
    return capsys.readouterr().out


def test_what_is_printed_can_be_pasted_into_a_shell(rules, sglang, capsys):
    text = plan(capsys, "--stack", sglang())
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("SGLANG_TEST="))
    pasted = "\n".join(lines[start : lines.index("", start)]).replace("\\\n", " ")
    variable, *words = shlex.split(pasted)
    assert variable == "SGLANG_TEST=a b"
    assert words[:4] == ["python", "-m", "sglang.launch_server", "--model-path"]
    assert words[5:] == ["--note", 'it\'s "quoted" $HOME', "--trust"]
    assert shlex.split(plan(capsys, "--stack", sglang(), "--one-line")) == [variable, *words]


def test_every_word_has_its_reason_and_the_lines_behind_it(rules, sglang, capsys):
    text = " ".join(plan(capsys, "--stack", sglang()).split())
    assert "--trust an option without a value sglang/srt/models/qwen3_5_mtp.py:1" in text
    assert "SGLANG_TEST=a b a variable with a blank in its value" in text


def test_json_holds_the_same_and_follows_the_schema(rules, sglang, capsys):
    text = plan(capsys, "--stack", sglang(), "--json")
    parsed = json.loads(text)
    model = PlanModel.model_validate_json(text)
    assert model.exit_code == 0
    assert [flag.words[0] for flag in model.flags] == ["--model-path", "--note", "--trust"]
    assert parsed["flags"][2]["where"] == [{"file": "sglang/srt/models/qwen3_5_mtp.py", "line": 1}]
    assert parsed["chain"]["subject"]["deployment"]["version"] == "0.5.12"


def test_a_plan_that_breaks_its_own_rules_says_so_and_exits_with_1(rules, sglang, capsys):
    rules.refused = ("--trust",)
    text = plan(capsys, "--stack", sglang(), code=1)
    assert "Broken at link 4 (launch): --trust: removed" in " ".join(text.split())


def test_only_draftproof_knows_tiny_so_the_stack_gets_its_folder(rules, sglang, capsys):
    words = shlex.split(plan(capsys, "--stack", sglang(), "--one-line"))
    assert words[words.index("--model-path") + 1].endswith("data/tiny")


def test_with_a_gpu_the_plan_says_what_it_will_reach(rules, sglang, capsys):
    text = plan(capsys, "--stack", sglang(), "--gpu", "h200", "--context", "4096")
    assert "what it will reach" in text
    assert "plain decoding: at most" in text
    assert "what it will reach" not in plan(capsys, "--stack", sglang())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "needs --stack"),
        (["--stack", "sglang,vllm"], "works for one stack"),
        (["--stack", "x"], "no stack"),
    ],
)
def test_a_plan_is_for_one_stack(options, named, capsys):
    assert run(["plan", "tiny", *options]) == 2
    assert named in capsys.readouterr().err
