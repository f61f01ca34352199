"""`draftproof serve`: runs the plan where the stack is installed, and otherwise says what is missing."""

import json
import os
import re
import sys

import pytest

from draftproof.cli.main import run
from draftproof.stacks.launch_facts import Requirement
from tests.support.stack_wheels import SGLANG_FILES, unpacked_wheel


class Replaced(Exception):
    """This process would be another one now."""


@pytest.fixture
def started(monkeypatch):
    """What would have been run: file, words, environment."""
    calls = []

    def replace(*call):
        calls.append(call)
        raise Replaced

    monkeypatch.setattr(os, "execvpe", replace)
    return calls


@pytest.fixture
def installed(tmp_path):
    """An environment with SGLang in it."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}.1\n")
    unpacked_wheel(folder / "lib" / f"python{version}" / "site-packages", "sglang", "0.5.12", SGLANG_FILES)
    return folder


def test_the_plan_is_run_with_the_python_of_the_stacks_environment(rules, installed, started, capsys):
    with pytest.raises(Replaced):
        run(["serve", "tiny", "--stack", f"sglang@{installed}", "--traceback"])
    program, words, environment = started[0]
    assert program == words[0] == str(installed / "bin" / "python")
    assert words[1:4] == ("-m", "sglang.launch_server", "--model-path")
    assert environment["SGLANG_TEST"] == "a b"
    assert "PATH" in environment
    text = capsys.readouterr().out
    assert "SGLANG_TEST='a b'" in text
    assert "  --trust" in text


def test_a_dry_run_shows_everything_and_runs_nothing(rules, installed, started, capsys):
    assert run(["serve", "tiny", "--stack", f"sglang@{installed}", "--dry-run"]) == 0
    assert started == []
    assert "python -m sglang.launch_server" in capsys.readouterr().out


def test_a_stack_that_is_not_installed_is_named_with_its_pip_command(rules, sglang, started, capsys):
    assert run(["serve", "tiny", "--stack", sglang()]) == 4
    error = capsys.readouterr().err
    assert "SGLang 0.5.12 is not installed" in error
    assert "pip install 'sglang==0.5.12'" in error
    assert started == []


def test_what_the_plan_needs_and_is_not_there_is_named_with_how_to_get_it(rules, installed, started, capsys):
    rules.requirements = (
        Requirement("nvcc", "12.9", "FlashInfer compiles kernels", False, "apt-get install cuda-nvcc-12-9"),
        Requirement("torch", "", "everything", True, "pip install torch"),
    )
    assert run(["serve", "tiny", "--stack", f"sglang@{installed}"]) == 4
    error = capsys.readouterr().err
    assert "nvcc 12.9 is missing (FlashInfer compiles kernels). Run: apt-get install cuda-nvcc-12-9" in error
    assert "torch" not in error
    assert started == []


def test_a_plan_with_a_broken_link_is_not_run(rules, installed, started, capsys):
    rules.refused = ("--trust",)
    assert run(["serve", "tiny", "--stack", f"sglang@{installed}"]) == 1
    assert "Broken at link 4" in capsys.readouterr().out
    assert started == []


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["--stack", "sglang", "--port", "1"], "--port"),
        (["--stack", "vllm==0.33.0", "--drafter", "none"], "--drafter"),
        (["--stack", "native", "--gpu", "h200"], "--gpu"),
        (["--tp", "2"], "--tp"),
        (["--stack", "sglang", "--speculative-config", "{}"], "--speculative-config"),
    ],
)
def test_options_of_the_other_kind_of_server_are_refused_by_name(options, refused, started, capsys):
    assert run(["serve", "tiny", *options]) == 2
    assert f"{refused} means nothing to" in capsys.readouterr().err
    assert started == []


def settings(capsys, *words):
    """What `--dry-run --json` shows."""
    assert run(["serve", *words, "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def sources(capsys, *words):
    """Where `--dry-run` says that each setting comes from."""
    assert run(["serve", *words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[0]: re.split(r" {2,}", line)[-1].strip() for line in lines}


def test_our_own_servers_settings_can_be_looked_at(capsys):
    words = ["tiny", "--max-num-seqs", "3", "--api-key", "secret", "--context-length", "99"]
    shown = settings(capsys, *words)
    assert (shown["max_sequences"], shown["max_length"]) == (3, 99)
    assert shown["api_keys"] == "1 given"
    assert "secret" not in json.dumps(shown)


def test_every_setting_says_where_it_comes_from(tmp_path, monkeypatch, capsys):
    file = tmp_path / "options.yaml"
    file.write_text("port: 9000\nmax-model-len: 64\nmax-num-seqs: 2\nk: 5\n")
    monkeypatch.setenv("DRAFTPROOF_SERVE_MAX_NUM_SEQS", "3")
    monkeypatch.setenv("DRAFTPROOF_SERVE_K", "4")
    words = ["tiny", "--config", str(file), "--k", "0", "--no-enable-prefix-caching"]
    shown, named = settings(capsys, *words), sources(capsys, *words)
    assert (shown["port"], named["port"]) == (9000, "file")
    assert (shown["max_length"], named["max_length"]) == (64, "file")
    assert (shown["max_sequences"], named["max_sequences"]) == (3, "environment")
    assert (shown["draft_tokens"], named["draft_tokens"]) == (0, "command line")
    assert (shown["drafter"], named["drafter"]) == ("none", "command line")
    assert (shown["prefix_snapshots"], named["prefix_snapshots"]) == (0, "command line")
    assert (shown["host"], named["host"]) == ("127.0.0.1", "default")


def test_the_checkpoint_may_be_named_as_other_stacks_do(tmp_path, capsys):
    file = tmp_path / "options.yaml"
    file.write_text("model: tiny\n")
    for words in (
        ["--model-path", "tiny"],
        ["--model", "tiny"],
        ["--config", str(file)],
        ["tiny", "--model", "tiny"],
    ):
        settings(capsys, *words)
    assert run(["serve", "tiny", "--model-path", "other", "--dry-run"]) == 2
    assert "two checkpoints are named: tiny and, by --model-path, other" in capsys.readouterr().err
    assert run(["serve", "--dry-run"]) == 2
    assert "no checkpoint is named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON object: no JSON at line 1"),
        ("[3]", "the top level is no object"),
        ("", "is no JSON object"),
    ],
)
def test_a_speculative_config_is_a_json_object(text, message, capsys):
    assert run(["serve", "tiny", "--speculative-config", text, "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_command_line_of_sglang_and_one_of_vllm_mean_the_same(capsys):
    sglang = ["--model-path", "tiny", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "2"]
    sglang += [
        "--speculative-eagle-topk",
        "1",
        "--speculative-num-draft-tokens",
        "3",
        "--disable-radix-cache",
    ]
    sglang += ["--context-length", "64", "--max-running-requests", "2", "--device", "cuda"]
    vllm = ["tiny", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}']
    vllm += ["--max-model-len", "64", "--max-num-seqs", "2", "--device", "cuda", "--no-enable-prefix-caching"]
    first = settings(capsys, *sglang, "--mem-fraction-static", "0.8")
    assert first == settings(capsys, *vllm, "--gpu-memory-utilization", "0.8")
    assert (first["draft_tokens"], first["prefix_snapshots"], first["memory_share"]) == (2, 0, 0.8)


@pytest.mark.parametrize("option", ["--reasoning-parser", "--tool-call-parser"])
def test_parsers_of_other_formats_are_refused(option, capsys):
    assert run(["serve", "tiny", option, "deepseek_r1", "--dry-run"]) == 2
    assert f"{option} deepseek_r1" in capsys.readouterr().err
    assert run(["serve", "tiny", "--reasoning-parser", "qwen3", "--dry-run"]) == 0


def test_options_can_be_given_by_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("DRAFTPROOF_SERVE_MAX_NUM_SEQS", "5")
    monkeypatch.setenv("DRAFTPROOF_SERVE_API_KEY", "one two")
    assert run(["serve", "tiny", "--dry-run", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert (settings["max_sequences"], settings["api_keys"]) == (5, "2 given")
    assert run(["serve", "--help"]) == 0
    assert "env var" not in capsys.readouterr().out


@pytest.mark.parametrize("key", ["", " ", "a ", "schlüssel", "a\nb"])
def test_a_key_that_protects_nothing_or_cannot_be_sent_is_refused(key, capsys):
    assert run(["serve", "tiny", "--api-key", "good", "--api-key", key, "--dry-run"]) == 2
    message = capsys.readouterr().err
    assert "--api-key" in message
    assert "schl" not in message


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://", "http://a b", ""])
def test_what_no_browser_calls_an_origin_is_refused(origin, capsys):
    assert run(["serve", "tiny", "--allowed-origin", origin, "--dry-run"]) == 2
    assert "scheme, host and port" in capsys.readouterr().err


@pytest.mark.parametrize("origin", ["https://example.org", "http://localhost:3000", "*", "http://[::1]:80"])
def test_origins_are_taken(origin, capsys):
    assert settings(capsys, "tiny", "--allowed-origin", origin)["allowed_origins"] == [origin]


def test_json_is_for_dry_runs(capsys):
    assert run(["serve", "tiny", "--json"]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_a_wrong_value_is_traced_to_where_it_stands(tmp_path, monkeypatch, capsys):
    file = tmp_path / "options.yaml"
    file.write_text("port: here\n")
    assert run(["serve", "tiny", "--config", str(file), "--dry-run"]) == 2
    assert "'--port' in the file of --config" in capsys.readouterr().err
    monkeypatch.setenv("DRAFTPROOF_SERVE_PORT", "tcp://10.0.0.1:8000")
    assert run(["serve", "tiny", "--dry-run"]) == 2
    assert "'--port' in DRAFTPROOF_SERVE_PORT" in capsys.readouterr().err
    assert run(["serve", "tiny", "--port", "there", "--dry-run"]) == 2
    assert "'--port': " in capsys.readouterr().err
