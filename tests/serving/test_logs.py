"""Log lines of both processes: for people, and for machines."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from draftproof.serving.logs import (
    JsonFormatter,
    LogFormat,
    LogLevel,
    LogSettings,
    TextFormatter,
    configure_logs,
)


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("draftproof.server", logging.INFO, "file.py", 1, message, ("x",), None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_json_line_holds_everything_that_was_given() -> None:
    line = JsonFormatter().format(record("took %s", request_id="r-1", seconds=0.5))
    content = json.loads(line)
    assert "\n" not in line
    assert content.pop("time").endswith("+00:00")
    assert content == {
        "level": "info",
        "logger": "draftproof.server",
        "message": "took x",
        "request_id": "r-1",
        "seconds": 0.5,
    }


def test_a_text_line_names_what_was_given() -> None:
    line = TextFormatter().format(record("took %s", request_id="r-1"))
    assert line.endswith("INFO took x [request_id=r-1]")


def test_a_traceback_stays_inside_its_json_line() -> None:
    made = record("failed %s")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made.exc_info = sys.exc_info()
    content = json.loads(JsonFormatter().format(made))
    assert "ValueError: two\nlines" in content["traceback"]


@pytest.fixture
def restored() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("draftproof")
    before = root.handlers, root.level, own.level
    yield
    root.handlers, level, own_level = before
    root.setLevel(level)
    own.setLevel(own_level)


@pytest.mark.usefixtures("restored")
def test_the_level_is_draftproofs_own_and_others_only_warn(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogSettings(LogFormat.TEXT, LogLevel.INFO))
    for name in ("draftproof.server", "somebody.else"):
        logging.getLogger(name).debug("debug of %s", name)
        logging.getLogger(name).info("info of %s", name)
        logging.getLogger(name).warning("warning of %s", name)
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "INFO info of draftproof.server",
        "WARNING warning of draftproof.server",
        "WARNING warning of somebody.else",
    ]
