"""What is installed beside vLLM, or would be: the packages that its choice of kernels looks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from draftproof.stacks.stack import Stack


class Presence(Enum):
    """Whether a package is there."""

    INSTALLED = "is installed beside it"
    REQUIRED = "is required by its own metadata"
    ABSENT = "is not installed beside it"
    UNKNOWN = "is not required, and where the stack will be installed is not known"


@dataclass(frozen=True)
class Package:
    """One distribution that kernels are taken from.

    Attributes:
        name: of the distribution: "flashinfer-python".
        presence: whether it is there.
        version: as installed, or as required; empty when neither is known.
    """

    name: str
    presence: Presence
    version: str

    @property
    def counts_as_present(self) -> bool | None:
        """For the stack's own question whether it can be imported; None when nobody knows."""
        if self.presence is Presence.UNKNOWN:
            return None
        return self.presence is not Presence.ABSENT

    @property
    def words(self) -> str:
        """For people: "flashinfer-python 0.6.14 is installed beside it"."""
        return " ".join(part for part in (self.name, self.version, self.presence.value) if part)


def package(stack: Stack, name: str) -> Package:
    """Whether a distribution is beside the stack, or is one that its metadata asks for."""
    if stack.beside is not None:
        version = stack.installed_version(name)
        found = Presence.ABSENT if version is None else Presence.INSTALLED
        return Package(name, found, version or "")
    required = required_version(stack, name)
    if required is not None:
        return Package(name, Presence.REQUIRED, required)
    return Package(name, Presence.UNKNOWN, "")


def required_version(stack: Stack, name: str) -> str | None:
    """The version that the metadata asks for, empty for any; None when it does not ask without an extra."""
    wanted = canonicalize_name(name)
    for text in stack.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        is_extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if canonicalize_name(requirement.name) == wanted and not is_extra:
            return str(requirement.specifier)
    return None
