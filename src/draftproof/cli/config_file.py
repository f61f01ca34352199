"""`--config FILE`: options of a command from a YAML file, by their long names.

The file is one more place that values come from, below the command line and the environment: it becomes the
map of defaults of the command's context, so that values are converted, checked and traced like all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.errors import EnvironmentProblem, UsageError

MOST_BYTES = 1 << 20
_NOT_IN_FILES = ("config", "dry_run", "as_json", "stack", "help")
"""Parameters that are about the one call."""


def _read(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = options_of_file(path, _parameters(context))
    return path


ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_read,
        help="Options from a YAML file, by their long names; the command line and the environment win.",
    ),
]


def options_of_file(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values by parameter.

    Args:
        path: of the file.
        parameters: of the command by every long name, without dashes in front.

    Raises:
        UsageError: the file cannot be read, is no YAML mapping, or has a key that is no option.
    """
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in _mapping(path).items():
        parameter = parameters.get(str(key).lstrip("-").replace("_", "-"))
        if parameter is None or parameter.name in _NOT_IN_FILES:
            near = get_close_matches(str(key), parameters, n=1, cutoff=0.6)
            remedy = (
                f"Nearest: {near[0]}." if near else "Keys are long names of options: port, max-model-len."
            )
            raise UsageError(f"{path}: {key} is no option that can be set in a file", remedy)
        if parameter.name in values:
            raise UsageError(f"{path}: {keys[parameter.name]} and {key} are the same option", "Keep one.")
        if value is not None:
            values[parameter.name] = _given(path, str(key), value, parameter)
            keys[parameter.name] = str(key)
    return values


def _parameters(context: typer.Context) -> dict[str, Any]:
    return {
        name.lstrip("-"): parameter
        for parameter in context.command.params
        for name in parameter.opts
        if name.startswith("--")
    }


def _mapping(path: Path) -> dict[Any, Any]:
    try:
        import yaml
    except ImportError as error:
        raise EnvironmentProblem("--config needs PyYAML", "Run: pip install 'draftproof[server]'.") from error
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"--config {path} has more than {MOST_BYTES >> 20} MiB, and is no list of options")
    try:
        content = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} is no YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"--config {path} holds no options", "Write one a line: `port: 9000`.")
    return content


def _given(path: Path, key: str, value: Any, parameter: Any) -> Any:
    """As the command line would give it: words, a list of words where an option may be repeated."""
    if parameter.multiple:
        return [_word(path, key, item) for item in (value if isinstance(value, list) else [value])]
    if isinstance(value, Mapping) and parameter.metavar == "JSON":
        return _json(path, key, value)
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key} is {value!r}", "Write true or false.")
        return value
    return _word(path, key, value)


def _json(path: Path, key: str, value: Mapping[Any, Any]) -> str:
    try:
        return json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: {key} cannot be written as JSON: {error}") from error


def _word(path: Path, key: str, value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"{path}: {key} is {value!r}", "Write one word or number.")
