"""The JSON files that describe a checkpoint, and typed access to them with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object, shown_value
from draftproof.checkpoint.source import Source
from draftproof.errors import CheckpointError, ConfigError

MAX_CONFIG_BYTES = 64_000_000
MAX_INTEGER = 2**53

_LIMITS = JsonLimits(values=4_000_000, depth=32)


@dataclass(frozen=True)
class ConfigFile:
    """One JSON file.

    Attributes:
        name: its name in the checkpoint.
        content: what it holds; None when it is absent or unusable.
        problem: why it is unusable; None when it is absent or sound.
    """

    name: str
    content: Mapping[str, Any] | None
    problem: ConfigError | None = None

    @property
    def present(self) -> bool:
        """The file exists, sound or not."""
        return self.content is not None or self.problem is not None

    def require(self) -> ConfigReader:
        """Reader of the whole file.

        Raises:
            ConfigError: it is absent or unusable.
        """
        if self.problem is not None:
            raise self.problem
        if self.content is None:
            raise ConfigError(f"there is no {self.name}")
        return ConfigReader(self.name, "", self.content)

    def optional(self) -> ConfigReader | None:
        """Reader of the whole file; None when it is absent.

        Raises:
            ConfigError: it is unusable.
        """
        return self.require() if self.present else None


@dataclass(frozen=True)
class ConfigFiles:
    """The files that say what the tensors are meant to be."""

    config: ConfigFile
    hf_quant_config: ConfigFile
    generation_config: ConfigFile


def read_config_files(source: Source) -> ConfigFiles:
    """Reads all of them; a broken one is kept as a problem and raised only when something needs it."""
    return ConfigFiles(
        read_config_file(source, "config.json"),
        read_config_file(source, "hf_quant_config.json"),
        read_config_file(source, "generation_config.json"),
    )


def read_config_file(source: Source, name: str) -> ConfigFile:
    """Reads one file; absence and damage are values, not errors."""
    if name not in source.list_files():
        reason = source.refused.get(name)
        return ConfigFile(name, None, ConfigError(f"{name}: {reason}") if reason else None)
    try:
        return ConfigFile(name, parse_object(source.read(name, MAX_CONFIG_BYTES), _LIMITS))
    except JsonProblem as error:
        return ConfigFile(name, None, ConfigError(f"{name}: {error}"))
    except CheckpointError as error:
        return ConfigFile(name, None, ConfigError(error.message, error.remedy))


class ConfigReader:
    """One object of a config file, read field by field with limits.

    Every method raises ConfigError with the file, the field's path, what was expected and what was found.

    Args:
        file: name of the file.
        path: path of this object: "" or "text_config".
        content: the object.
    """

    def __init__(self, file: str, path: str, content: Mapping[str, Any]) -> None:
        self._file = file
        self._path = path
        self._content = content

    @property
    def content(self) -> Mapping[str, Any]:
        """The object itself, for fields whose shape varies."""
        return self._content

    def has(self, key: str) -> bool:
        """The field is there and not null."""
        return self._content.get(key) is not None

    def where(self, key: str) -> str:
        """JSON path of a field: `text_config.num_experts`."""
        return f"{self._path}.{key}" if self._path else key

    def integer(
        self, key: str, minimum: int = 1, maximum: int = MAX_INTEGER, default: int | None = None
    ) -> int:
        """An integer in [minimum, maximum]; `default` for an absent or null field."""
        value = self._value(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.error(key, f"an integer from {minimum} to {maximum}")
        return value

    def number(self, key: str, minimum: float, maximum: float, default: float | None = None) -> float:
        """A number in [minimum, maximum]."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not minimum <= value <= maximum:
            raise self.error(key, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """true or false."""
        value = self._value(key, default)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(key, default)
        if type(value) is not str:
            raise self.error(key, "a text")
        return value

    def integers(self, key: str, minimum: int, maximum: int, length: int) -> tuple[int, ...]:
        """A list of at most `length` integers, or a single one; empty for an absent field."""
        value = self._content.get(key)
        if value is None:
            return ()
        values = value if isinstance(value, list) else [value]
        if len(values) > length or any(
            type(item) is not int or not minimum <= item <= maximum for item in values
        ):
            raise self.error(key, f"integers from {minimum} to {maximum}")
        return tuple(values)

    def strings(self, key: str, length: int) -> tuple[str, ...]:
        """A list of at most `length` texts; empty for an absent field."""
        value = self._content.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > length or any(type(item) is not str for item in value):
            raise self.error(key, f"a list of at most {length} texts")
        return tuple(value)

    def section(self, key: str) -> ConfigReader:
        """An object inside this one."""
        value = self._value(key, None)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return ConfigReader(self._file, self.where(key), value)

    def optional_section(self, key: str) -> ConfigReader | None:
        """An object inside this one; None for an absent or null field."""
        return self.section(key) if self.has(key) else None

    def error(self, key: str, expected: str) -> ConfigError:
        """The error that says what a field should have been."""
        found = f"found {shown_value(self._content[key])}" if key in self._content else "the field is missing"
        return ConfigError(f"{self._file}: {self.where(key)}: expected {expected}, {found}")

    def refuse(self, key: str, why: str) -> ConfigError:
        """The error for a value that is well-formed and makes no sense."""
        return ConfigError(f"{self._file}: {self.where(key)}: {why}")

    def _value(self, key: str, default: Any) -> Any:
        value = self._content.get(key)
        return default if value is None else value
