"""A benchmark that cannot be carried out is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.bench.request import (
    AS_MANY_AS_FIT,
    BenchRequest,
    accept_length_of,
    chance_of,
    parse_draft_vocabulary,
    parse_layers,
)
from draftproof.errors import UsageError
from draftproof.kernels.backend_rules import Backend

SHAPE = "qwen3.5-35b-a3b"


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("no shape 'x'", {"shape": "x"}),
        ("no precision layout 'int3'", {"precision": "int3"}),
        ("--batch 65", {"batches": (1, 65)}),
        ("--batch needs", {"batches": ()}),
        ("--draft-tokens 8", {"draft_tokens": (8,)}),
        ("--layers 41", {"layers": 41}),
        ("--context 0", {"context": 0}),
        ("--draft-vocabulary 0", {"draft_rows": 0}),
        ("--simulate-accept-length 4.5", {"accept_length": 4.5}),
        ("--simulate-accept-length 0.5", {"accept_length": 0.5}),
        ("--batch names 4 twice", {"batches": (4, 1, 4)}),
        ("--draft-tokens names 3 twice", {"draft_tokens": (3, 3)}),
        (
            "--backend names route twice",
            {"backends": (("route", Backend.CUDA), ("route", Backend.TRITON))},
        ),
        ("--seed -1", {"seed": -1}),
        ("--seed 9223372036854775808", {"seed": 2**63}),
        ("draft vocabulary absent.txt cannot be read", {"draft_file": Path("absent.txt")}),
    ],
)
def test_impossible_requests_are_usage_errors(words: str, changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        BenchRequest(**{"shape": SHAPE, **changes})  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_a_broken_draft_vocabulary_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text("1\n999999999\n")
    with pytest.raises(UsageError, match="line 2: '999999999' is no token id below 248320"):
        BenchRequest(SHAPE, draft_file=path)


@pytest.mark.parametrize("text", ["0", "-4", "fits", "1.5", ""])
def test_layers_are_a_number_from_1_or_fit(text: str) -> None:
    with pytest.raises(UsageError, match="--layers"):
        parse_layers(text)
    assert parse_layers("fit") == AS_MANY_AS_FIT


def test_a_draft_vocabulary_is_a_number_or_a_file() -> None:
    assert parse_draft_vocabulary("32768") == (32768, None)
    assert parse_draft_vocabulary("tokens.txt") == (None, Path("tokens.txt"))
    assert parse_draft_vocabulary("9" * 5000)[0] is None


def test_acceptance_is_simulated_only_when_it_is_asked_for_and_never_without_drafts() -> None:
    assert BenchRequest(SHAPE).simulated(3) is None
    asked = BenchRequest(SHAPE, draft_tokens=(0, 1, 2, 3), accept_length=3.0)
    assert asked.simulated(0) is None
    assert asked.simulated(3) == pytest.approx(3.0)


def test_fewer_drafts_keep_the_chance_of_each() -> None:
    asked = BenchRequest(SHAPE, draft_tokens=(1, 2, 3), accept_length=3.0)
    chance = chance_of(3.0, 3)
    assert asked.simulated(1) == pytest.approx(1 + chance)
    assert asked.simulated(2) == pytest.approx(1 + chance + chance**2)


@pytest.mark.parametrize(("accept_length", "drafts"), [(1.0, 3), (4.0, 3), (2.2, 2)])
def test_chance_and_accept_length_are_inverse(accept_length: float, drafts: int) -> None:
    assert accept_length_of(chance_of(accept_length, drafts), drafts) == pytest.approx(accept_length)
