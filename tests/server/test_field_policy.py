"""Fields beyond those that the API reads: refused by name, taken without a word, or named once in the log."""

from __future__ import annotations

import logging

import pytest

from draftproof.server.field_policy import MOST_REMEMBERED, UNSUPPORTED, FieldPolicy
from draftproof.server.schemas.chat import ChatBody
from draftproof.server.schemas.completion import CompletionBody
from tests.server.conftest import Post


@pytest.mark.parametrize(
    "fields", [{"best_of": 2}, {"suffix": "x"}, {"guided_json": {}}, {"use_beam_search": True}]
)
def test_a_field_that_would_change_the_answer_is_refused_by_name(
    complete: Post, fields: dict[str, object]
) -> None:
    answer = complete(**fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == next(iter(fields))
    assert error["code"] == "unsupported_parameter"


def test_values_that_ask_for_nothing_are_taken(complete: Post) -> None:
    neutral = {name: rule.neutral[0] for name, rule in UNSUPPORTED.items() if rule.neutral}
    assert complete(**neutral).status_code == 200
    assert complete(**dict.fromkeys(UNSUPPORTED)).status_code == 200


def test_no_field_is_both_read_and_unsupported() -> None:
    assert not UNSUPPORTED.keys() & (ChatBody.model_fields.keys() | CompletionBody.model_fields.keys())


def test_unknown_fields_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    policy = FieldPolicy()
    with caplog.at_level(logging.WARNING, "draftproof.server"):
        for _ in range(3):
            policy.check("/v1/completions", {"temprature": 0, "user": "me"})
    assert caplog.messages == ["/v1/completions: unknown field 'temprature' is ignored; said once"]


def test_names_from_outside_fill_neither_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    policy = FieldPolicy()
    with caplog.at_level(logging.WARNING, "draftproof.server"):
        policy.check("/x", {f"{number}\n{'a' * 1000}": 0 for number in range(2 * MOST_REMEMBERED)})
    assert len(caplog.messages) == MOST_REMEMBERED
    assert max(map(len, caplog.messages)) < 200
    assert not any("\n" in message for message in caplog.messages)
