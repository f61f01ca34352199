"""What a git checkout says about its commit, read from its files without running git."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from draftproof.stacks.find.environments import read_bounded

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_VERSION_TAG = re.compile(r"v?(\d+(?:\.\d+)+(?:[.-]?(?:rc|post|dev|a|b)\d*)?)")


@dataclass(frozen=True)
class Checkout:
    """A git checkout.

    Attributes:
        folder: its top.
        commit: hex digits; None when its files do not say (an unborn branch, another ref format).
        tags: names that point at the commit.
    """

    folder: Path
    commit: str | None
    tags: tuple[str, ...]

    @property
    def version(self) -> str:
        """The version that a tag names; empty without such a tag."""
        versions = (match[1] for tag in self.tags if (match := _VERSION_TAG.fullmatch(tag)))
        return max(versions, key=len, default="")


def find_checkout(folder: Path) -> Checkout | None:
    """The checkout whose top is the folder or one of its two next parents; None when there is none."""
    for top in (folder, *list(folder.parents)[:2]):
        repository = _repository(top)
        if repository is not None:
            common = _common(repository)
            commit = _commit(repository, common)
            return Checkout(top, commit, _tags(common, commit) if commit else ())
    return None


def _repository(top: Path) -> Path | None:
    """The .git folder, or what the .git file of a worktree or submodule points to."""
    git = top / ".git"
    if git.is_dir():
        return git if (git / "HEAD").is_file() else None
    pointer = read_bounded(git) if git.is_file() else ""
    if not pointer.startswith("gitdir: "):
        return None
    repository = top / pointer.removeprefix("gitdir: ").strip()
    return repository if (repository / "HEAD").is_file() else None


def _common(repository: Path) -> Path:
    """Worktrees share the branches of the main repository."""
    shared = read_bounded(repository / "commondir").strip()
    return repository / shared if shared else repository


def _commit(repository: Path, common: Path) -> str | None:
    head = read_bounded(repository / "HEAD").strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ").strip()
    if ".." in name.split("/") or name.startswith("/"):
        return None
    loose = read_bounded(common / name).strip() or read_bounded(repository / name).strip()
    if _COMMIT.fullmatch(loose):
        return loose
    return next((commit for commit, packed in _packed(common) if packed == name), None)


def _packed(common: Path) -> list[tuple[str, str]]:
    """(commit, name) of packed refs; an annotated tag counts with the commit that it is about."""
    found: list[tuple[str, str]] = []
    for line in read_bounded(common / "packed-refs").splitlines():
        if line.startswith("^") and found:
            found[-1] = (line[1:].strip(), found[-1][1])
        elif not line.startswith(("#", "^")) and " " in line:
            commit, _, name = line.partition(" ")
            found.append((commit, name.strip()))
    return found


def _tags(common: Path, commit: str) -> tuple[str, ...]:
    packed = {name.removeprefix("refs/tags/") for found, name in _packed(common) if found == commit}
    folder = common / "refs" / "tags"
    loose = {tag.name for tag in folder.glob("*") if tag.is_file() and read_bounded(tag).strip() == commit}
    return tuple(sorted({name for name in packed if not name.startswith("refs/")} | loose))
