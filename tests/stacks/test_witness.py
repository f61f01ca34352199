"""An installed stack's own parser is asked in a process of its own; whatever it does is an answer."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.launch_facts import LaunchFinding, Option, OptionTable, Ruling, ValueKind
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind
from draftproof.stacks.witness import ask_parser, parser_findings

AGREES = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--speculative-algorithm", choices=["EAGLE", "NEXTN"])
"""
HERE = Place("sglang/srt/server_args.py", 1)
TABLE = OptionTable(
    (
        Option("--model-path", ("--model",), ValueKind.STRING, (), "", HERE),
        Option("--speculative-algorithm", (), ValueKind.STRING, ("EAGLE", "NEXTN"), "", HERE),
    )
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A folder that looks like an environment: its python finds a made-up sglang package."""
    (tmp_path / "lib/sglang/srt").mkdir(parents=True)
    for package in ("sglang", "sglang/srt"):
        (tmp_path / "lib" / package / "__init__.py").write_text("print('noise')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/lib exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def installed(environment: Path, content: str) -> Stack:
    (environment / "lib/sglang/srt/server_args.py").write_text(content)
    return Stack(StackKind.SGLANG, "1", SourceTree(environment / "lib"), "made up", environment / "python")


def findings(environment: Path, content: str, text: str) -> dict[Ruling, list[str]]:
    command = parse_command(text)
    answer = ask_parser(installed(environment, content), command)
    made: tuple[LaunchFinding, ...] = parser_findings(answer, TABLE)
    return {ruling: [entry.observed for entry in made if entry.ruling is ruling] for ruling in Ruling}


def test_a_parser_that_agrees(environment: Path) -> None:
    made = findings(environment, AGREES, "--model m --speculative-algorithm NEXTN")
    assert made[Ruling.HOLDS] == ["the parser takes the command"]
    assert not made[Ruling.WARNS]
    assert "sglang" not in sys.modules


def test_a_parser_that_refuses_the_command_says_why(environment: Path) -> None:
    made = findings(environment, AGREES, "--model m --speculative-algorithm MTP")
    assert "invalid choice: 'MTP'" in made[Ruling.BREAKS][0]


def test_every_difference_from_the_source_is_a_finding(environment: Path) -> None:
    other = AGREES.replace('"--model"', '"--weights"').replace('"NEXTN"]', '"UNO"]')
    made = findings(environment, other, "--model-path m")
    assert made[Ruling.WARNS] == [
        "the parser has options that were not found in the source: --weights",
        "the source declares options that the parser does not have: --model",
        "the parser allows other values than the source was read to allow: --speculative-algorithm",
    ]


def test_a_parser_that_hangs_is_given_up_with_all_that_it_started(environment: Path) -> None:
    slow = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    start = time.monotonic()
    answer = ask_parser(installed(environment, slow + AGREES), timeout=0.5)
    assert time.monotonic() - start < 10
    assert answer.sentence == "the argument parser of SGLang 1 gave no answer within 0.5 s"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("import torch_that_is_not_there", "No module named 'torch_that_is_not_there'"),
        ("raise SystemExit(3)", "exit status 3"),
        ("import os\nos.kill(os.getpid(), 9)", "exit status -9"),
        ("class ServerArgs: pass", "has no attribute 'add_cli_args'"),
        (
            f"print('draftproof-parser-answer [1]', flush=True)\n{AGREES}\nimport os; os._exit(0)",
            "makes no sense",
        ),
    ],
)
def test_a_parser_that_cannot_be_asked_is_a_note_and_no_finding(
    environment: Path, content: str, sentence: str
) -> None:
    answer = ask_parser(installed(environment, content))
    # The last case prints its answer while it is imported and leaves before the program can give its own.
    assert answer.value is None
    assert sentence in answer.sentence
    assert parser_findings(answer, TABLE) == ()


def test_a_stack_that_is_not_installed_is_not_asked(tmp_path: Path) -> None:
    stack = Stack(StackKind.VLLM, "1", SourceTree(tmp_path), "a folder")
    assert "is not installed here" in ask_parser(stack).sentence
    gone = Stack(StackKind.VLLM, "1", SourceTree(tmp_path), "a folder", tmp_path / "python")
    assert "cannot be run" in ask_parser(gone).sentence
