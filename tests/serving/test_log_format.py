"""Log lines of both processes: for people, and for machines."""

import json
import logging
import sys

from draftproof.serving.log_format import JsonFormatter, TextFormatter


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
