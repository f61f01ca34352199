"""`draftproof bench` refuses what cannot be, in one line, before it loads anything."""

from __future__ import annotations

import pytest
import torch

from draftproof.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "qwen9"], "no shape 'qwen9'"),
        (["--precision", "int3"], "no precision layout 'int3'"),
        (["--batch", "1,x"], "--batch '1,x' is no list of numbers"),
        (["--k", "9"], "--draft-tokens 9"),
        (["--simulate-accept-length", "9"], "from 1 to 4 tokens"),
    ],
)
def test_impossible_requests(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(["bench"]) == 4
    assert "no CUDA device" in capsys.readouterr().err


def test_simulation_is_off_unless_asked_for_and_its_help_says_what_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["bench", "--help"]) == 0
    assert "SIMULATE" in capsys.readouterr().out
