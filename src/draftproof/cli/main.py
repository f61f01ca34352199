"""The command line: a table of commands, and the one place where errors become lines and exit codes.

A command is a function in its own module, imported only when it is called, so that ``--help`` and the
commands without torch answer at once. It returns its exit code (None means 0) and raises ``DraftproofError``
for everything that the user can be told in one line.

Exit codes: 0 proven or done, 1 disproved, 2 usage, 3 not enough evidence, 4 environment, 70 a defect in
draftproof itself (never 1: a crash disproves nothing), 130 interrupted, 141 the reader of the output went
away before there was a result.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from draftproof import __version__
from draftproof.cli.console import silence_standard_output, write_error, write_text
from draftproof.errors import UsageError, known_problem

INTERNAL_DEFECT = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

_TRACEBACK = "--traceback"
# typer brings its own copy of click, so the class has no import path that holds for every version.
_USAGE_ERRORS: tuple[type[BaseException], ...] = tuple(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


@dataclass(frozen=True)
class Command:
    """One row of the command table.

    Attributes:
        name: what the user types.
        target: "module:function" of the function that carries it out.
        summary: one line in the list of commands.
        environment: beginning of the names of variables that stand for its options; None for none.
    """

    name: str
    target: str
    summary: str
    environment: str | None = None

    def load(self) -> Callable[..., Any]:
        """Imports the function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(import_module(module), function)
        return loaded


COMMANDS = (
    Command(
        "verify",
        "draftproof.cli.verify:verify",
        "Prove, link by link, that a checkpoint's MTP head is there, and that a stack will use it.",
    ),
    Command(
        "plan",
        "draftproof.cli.plan:plan",
        "Propose the launch command for SGLang or vLLM, with a reason for every word.",
    ),
    Command(
        "serve",
        "draftproof.cli.serve:serve",
        "Serve a checkpoint behind OpenAI's API: our own engine, or SGLang or vLLM as planned.",
        environment="DRAFTPROOF_SERVE",
    ),
    Command(
        "inspect",
        "draftproof.cli.inspect:inspect",
        "Show what is inside a checkpoint: family, MTP head, precision, sizes.",
    ),
    Command(
        "demo",
        "draftproof.cli.demo:demo",
        "The whole story on the embedded checkpoint, on this machine, in under a minute.",
    ),
    Command(
        "generate",
        "draftproof.cli.generate:generate",
        "Continue a prompt, with or without speculation; the text is the same.",
    ),
    Command(
        "bench",
        "draftproof.cli.bench:bench",
        "Time the GPU engine on weights of a real release's shape, beside the byte roofline.",
    ),
    Command(
        "doctor",
        "draftproof.cli.doctor:doctor",
        "Check this machine: versions, devices, kernels chosen and why.",
    ),
)


def main() -> None:
    """Entry point of the ``draftproof`` script."""
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        _leave_at_once(code)
    # On its way out the interpreter looks for cycles among all objects, several times: seconds after a stack
    # of millions of syntax nodes was read. Nothing is left to be freed.
    gc.freeze()
    sys.exit(code)


def _leave_at_once(code: int) -> NoReturn:
    """Ends the process without waiting for threads that are in the middle of a long reading."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Carries out one command line and returns its exit code. Nothing that goes wrong leaves as an exception,
    unless ``--traceback`` asks for it."""
    options = _before_separator(arguments)
    as_json = "--json" in options
    show_traceback = _TRACEBACK in options
    words = [word for word in arguments if word != _TRACEBACK] if show_traceback else list(arguments)
    _hush_libraries()
    _print_any_text()
    try:
        return _dispatch(words or ["--help"])
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_standard_output()
        return BROKEN_PIPE
    except Exception as error:
        if show_traceback:
            raise
        return _report(error, as_json)


def _dispatch(words: list[str]) -> int:
    try:
        result = build(words)(args=words, prog_name="draftproof", standalone_mode=False)
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except _USAGE_ERRORS as error:
        raise UsageError(_usage_message(error), f"See '{_help_command(words)}'") from error
    except SystemExit as stop:
        # rich ends the process this way when the reader of its output is gone.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        return stop.code if isinstance(stop.code, int) else 0
    return result if isinstance(result, int) else 0


def build(words: Sequence[str]) -> typer.Typer:
    """The application: the called command imported, every other one present by name and summary only."""
    called = next((word for word in words if not word.startswith("-")), None)
    app = typer.Typer(
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: 0 proven, 1 disproved, 2 usage, 3 not enough evidence, 4 environment, "
        "70 defect, 130 interrupted.",
    )
    app.callback()(_draftproof)
    completing = any(name.startswith("_DRAFTPROOF") for name in os.environ)
    for command in COMMANDS:
        function = command.load() if completing or command.name == called else _not_loaded
        help_text = function.__doc__ if function is not _not_loaded else command.summary
        app.command(
            command.name,
            cls=_WithVariables,
            help=help_text,
            short_help=command.summary,
            context_settings={"auto_envvar_prefix": command.environment},
        )(function)
    return app


class _WithVariables(TyperCommand):
    """Every long name of an option is an environment variable too, and help does not repeat them."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        prefix = self.context_settings.get("auto_envvar_prefix")
        for parameter in self.params:
            names = [name.strip("-").replace("-", "_") for name in parameter.opts if name.startswith("--")]
            parameter.show_envvar = False  # type: ignore[attr-defined]
            if prefix and names:
                parameter.envvar = [f"{prefix}_{name.upper()}" for name in names]


def _not_loaded() -> None:
    """Stands for a command that this command line does not call."""


def _show_version(asked: bool) -> None:
    if asked:
        write_text(f"draftproof {__version__}\n")
        raise typer.Exit


def _draftproof(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, typer.Option(_TRACEBACK, help="Show the traceback of an error.")] = False,
) -> None:
    """Serve language models with their own MTP head, and prove it at every layer."""


def _report(error: Exception, as_json: bool) -> int:
    known = known_problem(error)
    if known is not None:
        return write_error(type(known).__name__, known.message, known.remedy, known.exit_code, as_json)
    message = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    remedy = f"This is a defect in draftproof; run the same command with {_TRACEBACK} and report it"
    return write_error("InternalDefect", message, remedy, INTERNAL_DEFECT, as_json)


def _usage_message(error: BaseException) -> str:
    text: str = error.format_message() if hasattr(error, "format_message") else str(error)
    # typer passes on pydantic's name for the error, which says nothing to a user.
    words = " ".join(text.replace("Value error, ", "").split()).rstrip(".")
    place = _place_of_value(error)
    return words.replace("': ", f"'{place}: ", 1) if place else words


def _place_of_value(error: BaseException) -> str:
    """Where a wrong value stands, when that is not the command line."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or parameter is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    if source is None or source.name not in ("ENVIRONMENT", "DEFAULT_MAP"):
        return ""
    if source.name == "DEFAULT_MAP":
        return " in the file of --config"
    variables = [name for name in parameter.envvar or () if os.environ.get(name)]
    return f" in {variables[0]}" if variables else ""


def _help_command(words: Sequence[str]) -> str:
    known = {command.name for command in COMMANDS}
    called = next((word for word in words if not word.startswith("-")), "")
    return f"draftproof {called} --help" if called in known else "draftproof --help"


def _before_separator(arguments: Sequence[str]) -> list[str]:
    """The arguments up to "--", after which nothing is an option."""
    words = list(arguments)
    return words[: words.index("--")] if "--" in words else words


def _hush_libraries() -> None:
    """Library chatter never mixes with a report; what matters reaches the user as evidence or as an error."""
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _print_any_text() -> None:
    """Characters that the terminal's encoding lacks are written as escapes, never an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
