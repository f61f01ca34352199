"""Every kind of stack has rules that answer all questions."""

from __future__ import annotations

import pytest

from draftproof.stacks.known import rules_for
from draftproof.stacks.stack import StackKind


@pytest.mark.parametrize("kind", StackKind)
def test_rules_answer_every_question(kind: StackKind) -> None:
    rules = rules_for(kind)
    for question in ("head_support", "options", "judge", "plan", "backends"):
        assert callable(getattr(rules, question))
