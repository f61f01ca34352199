"""Log lines of a server on standard error: text, or one JSON object a line. Both processes use it."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFormat(Enum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class LogSettings:
    """What a process logs.

    Attributes:
        form: of a line.
        level: draftproof's own lines from this level on.
    """

    form: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever `extra` the call gave."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        content: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, message, and `extra` as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, a traceback not included."""
        named = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        line = super().formatMessage(record)
        return f"{line} [{named}]" if named else line


def configure_logs(settings: LogSettings) -> None:
    """Send draftproof's own lines, and warnings of anybody, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.form is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("draftproof").setLevel(settings.level.name)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
