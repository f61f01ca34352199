"""Stacks on disk whose rules say what a test wants."""

import pytest

from draftproof.cli import stack_chain
from tests.support.scripted_rules import ScriptedRules
from tests.support.stack_wheels import SGLANG_FILES, unpacked_wheel


@pytest.fixture
def rules(monkeypatch):
    """Answers for every stack; change it before the command runs."""
    scripted = ScriptedRules()
    monkeypatch.setattr(stack_chain, "rules_for", lambda kind: scripted)
    return scripted


@pytest.fixture
def sglang(tmp_path):
    """Makes an unpacked SGLang of a version; returns the words after --stack."""

    def make(version="0.5.12"):
        files = {**SGLANG_FILES, "sglang/_version.py": f"__version__ = version = '{version}'\n"}
        return f"sglang@{unpacked_wheel(tmp_path / f'sglang-{version}', 'sglang', version, files)}"

    return make
