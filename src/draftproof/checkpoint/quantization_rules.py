"""What quantisation sections share: the list of excluded modules, and the answer about one module."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoint.config import ConfigReader
from draftproof.checkpoint.module_patterns import ModulePatterns
from draftproof.checkpoint.precision import Precision

MAX_LIST = 1_000_000

_EXCLUDE_KEYS = (
    "ignore",
    "exclude_modules",
    "modules_to_not_convert",
    "ignored_layers",
    "exclude",
    "llm_int8_skip_modules",
)


@dataclass(frozen=True)
class DeclaredPrecision:
    """What a config says about one module.

    Attributes:
        precision: the scheme; None when it is said to stay unquantised; UNKNOWN when it is said to be
            quantised in a way that is not recognised.
        rule: which part of the config says so, for messages.
    """

    precision: Precision | None
    rule: str


class ModuleRules:
    """A quantisation section with its list of excluded modules.

    Args:
        section: the object.
        default_method: the method of files that need not name it.
    """

    def __init__(self, section: ConfigReader, default_method: str = "") -> None:
        self.section = section
        self.default_method = default_method
        self.exclude_key = next((key for key in _EXCLUDE_KEYS if section.has(key)), None)
        self.excludes = section.strings(self.exclude_key, MAX_LIST) if self.exclude_key else ()
        self._excluded = ModulePatterns(self.excludes)
        self._also_refused: tuple[str, ...] = ()
        self._algorithm = ""

    @property
    def json_path(self) -> str:
        """JSON path of the section."""
        return self.section.where("").rstrip(".")

    @property
    def exclude_path(self) -> str | None:
        """JSON path of the list; None when there is none."""
        return self.section.where(self.exclude_key) if self.exclude_key else None

    def excluded(self, module: str) -> DeclaredPrecision | None:
        """The answer for a module that the list covers; None for the others."""
        pattern = self._excluded.match(module)
        if pattern is None:
            return None
        return DeclaredPrecision(None, f"{self.exclude_path} ({pattern!r})")

    def name_algorithm(self, algorithm: str, refused: tuple[str, ...] = ()) -> None:
        """Notes what the section's format found: the scheme's name, and patterns that are not applied."""
        self._algorithm = algorithm
        self._also_refused = refused

    def algorithm(self) -> str:
        """The scheme or schemes, in the file's own words."""
        return self._algorithm

    def refused(self) -> tuple[str, ...]:
        """Patterns that are not applied."""
        return (*self._excluded.refused, *self._also_refused)
