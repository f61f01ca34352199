"""The real sources are there, whole, and the released ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.request import parse_request
from draftproof.stacks.stack import Stack
from tests.support import real_stacks
from tests.support.real_stacks import REAL_STACKS


@pytest.mark.parametrize(("name", "version"), REAL_STACKS)
def test_each_real_source(real_stack: Callable[[str, str], Stack], name: str, version: str) -> None:
    stack = real_stack(name, version)
    assert stack.label == f"{stack.kind.title} {version}"
    assert len(stack.tree.walk(name)) > 1000
    assert any(requirement.startswith("torch") for requirement in stack.requires)
    assert stack is real_stack(name, version)


def test_the_same_source_unpacked_says_the_same(real_stack: Callable[[str, str], Stack]) -> None:
    """A kept release and a folder with the same files are read by different code."""
    kept = real_stack("vllm", "0.33.0")
    unpacked = StackFinder().find(parse_request(str(kept.tree.root)))
    assert (unpacked.version, unpacked.requires, unpacked.notes) == ("0.33.0", kept.requires, ())


def test_without_network_and_cache_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    nowhere = {"DRAFTPROOF_CACHE": str(folder), "HOME": str(folder), "PIP_NO_INDEX": "1"}
    monkeypatch.setattr(real_stacks, "_ENVIRONMENT", {**nowhere, "PIP_CONFIG_FILE": "/dev/null"})
    with pytest.raises(RuntimeError, match=r"python -m tests\.support\.real_stacks"):
        real_stacks.real_stack.__wrapped__("sglang", "0.5.9")
