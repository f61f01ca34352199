"""`logging` and `warnings`: what evaluated code writes becomes an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.stacks.evaluation import operators
from draftproof.stacks.evaluation.outcomes import LogMessage
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import Arguments, ClassValue, Implementation, Missing, NativeFunction

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_LEVELS = ("debug", "info", "warning", "error", "critical", "exception")


def _logger_class() -> ClassValue:
    cls = ClassValue("Logger", (), {})
    cls.module = "logging"
    for level in _LEVELS:
        for name in (level, f"{level}_once"):
            cls.namespace[name] = NativeFunction(f"logger.{name}", _writer(name, 1), {"binds": True})
    cls.namespace["warn"] = cls.namespace["warning"]
    cls.namespace["log"] = NativeFunction("logger.log", _writer("log", 2), {"binds": True})
    return cls


def _writer(level: str, skipped: int) -> Implementation:
    """A method that notes its message; `skipped` arguments stand before it."""

    def write(run: Run, arguments: Arguments) -> Value:
        message, *values = arguments.positional[skipped:] or ("",)
        text = message
        if values and isinstance(message, str):
            text = operators.binary(run, "%", message, tuple(values), arguments.place)
        text = run.text_of(text, arguments.place)
        shown = text.name if isinstance(text, Unknown) else str(text)
        run.events.append(LogMessage(level, shown, arguments.place))
        return None

    return write


_LOGGER = _logger_class()


def make_logger(run: Run, arguments: Arguments) -> Value:
    """`logging.getLogger(name)`."""
    logger = run.new_instance(_LOGGER, "logger")
    logger.missing = Missing.UNKNOWN
    return logger


def logging_module() -> dict[str, Value]:
    """What `logging` offers."""
    levels = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
    functions = {level: NativeFunction(f"logging.{level}", _writer(level, 0)) for level in _LEVELS}
    return {
        **levels,
        **functions,
        "getLogger": NativeFunction("logging.getLogger", make_logger),
        "Logger": _LOGGER,
    }


def warnings_module() -> dict[str, Value]:
    """What `warnings` offers."""
    return {"warn": NativeFunction("warnings.warn", _warn)}


def _warn(run: Run, arguments: Arguments) -> Value:
    given = Arguments(arguments.positional[:1], {}, arguments.place)
    return _writer("warning", 0)(run, given)
