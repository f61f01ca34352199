"""A serving stack that was found: its source, where it came from, and what is installed beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from packaging.utils import canonicalize_name

from draftproof.stacks.source import SourceTree


class StackKind(Enum):
    """The stacks whose rules are known. The value is what the user types."""

    SGLANG = "sglang"
    VLLM = "vllm"
    NATIVE = "native"

    @property
    def package(self) -> str:
        """Folder of its Python package, which is also the name of its distribution."""
        return "draftproof" if self is StackKind.NATIVE else self.value

    @property
    def title(self) -> str:
        """As people write it."""
        return {StackKind.SGLANG: "SGLang", StackKind.VLLM: "vLLM", StackKind.NATIVE: "draftproof"}[self]


@dataclass(frozen=True)
class Distribution:
    """An installed distribution.

    Attributes:
        name: normalised: "flashinfer-python".
        version: as its metadata folder says it.
    """

    name: str
    version: str


@dataclass(frozen=True)
class Stack:
    """A stack as it was found.

    Attributes:
        kind: which one.
        version: of its source; empty when the source does not say (a git checkout without a tag).
        tree: its source; the root holds the package's folder.
        origin: where it was found, as words that complete "SGLang 0.5.12, ...".
        python: the interpreter of the environment that it is installed in; None when it is in none.
        beside: every distribution of that environment, or of the folder that it is unpacked in; None when
            there is no such place, so that nothing is known about what would be beside it.
        requires: what its own metadata asks for, one Requires-Dist value each, markers included.
        notes: what the user should know about this source: withdrawn from the index, files changed since the
            installation.
    """

    kind: StackKind
    version: str
    tree: SourceTree
    origin: str
    python: Path | None = None
    beside: tuple[Distribution, ...] | None = None
    requires: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version, for messages: "SGLang 0.5.12"."""
        return f"{self.kind.title} {self.version or '(version unknown)'}"

    @property
    def package_folder(self) -> Path:
        """The folder of the package on this machine."""
        return self.tree.root / self.kind.package

    def installed_version(self, distribution: str) -> str | None:
        """The version of a distribution beside it; None when it is not there or nothing is known."""
        name = canonicalize_name(distribution)
        return next((found.version for found in self.beside or () if found.name == name), None)
