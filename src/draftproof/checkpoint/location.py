"""What the name of a checkpoint means: a folder, the embedded checkpoint, or a repository on the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from draftproof.errors import EnvironmentProblem, UsageError

EMBEDDED = "tiny"
HUB_SCHEME = "hf://"

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}")
_REVISION = re.compile(r"[\w][\w./-]{0,254}")
_FILE_SUFFIXES = (".safetensors", ".json", ".gguf", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class FolderLocation:
    """A checkpoint on this machine.

    Attributes:
        argument: what the user wrote.
        folder: where it lies; exists.
        embedded: it is the checkpoint that comes with draftproof.
    """

    argument: str
    folder: Path
    embedded: bool = False

    def __str__(self) -> str:
        return str(self.folder)


@dataclass(frozen=True)
class HubLocation:
    """A repository on the Hugging Face hub; whether it exists is not known yet.

    Attributes:
        argument: what the user wrote.
        repository: "organisation/name".
        revision: branch, tag or commit; None takes the default branch.
    """

    argument: str
    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


Location = FolderLocation | HubLocation


def resolve(argument: str) -> Location:
    """Decides what an argument names. A folder that exists wins over every other reading.

    Args:
        argument: a folder, `tiny`, or `organisation/name[@revision]` (`hf://` before it rules out a folder).

    Raises:
        UsageError: it names a file, looks like a path but is not there, or is nothing of the three.
        EnvironmentProblem: `tiny` is asked for and this installation lacks it.
    """
    if not argument.strip() or "\0" in argument:
        raise UsageError(
            "the checkpoint's name is empty" if not argument.strip() else "the name holds a zero byte"
        )
    if argument.startswith(HUB_SCHEME):
        return _repository(argument, argument.removeprefix(HUB_SCHEME))
    path = Path(argument).expanduser()
    if _exists(path):
        return _folder(argument, path)
    if argument == EMBEDDED:
        return FolderLocation(argument, embedded_folder(), embedded=True)
    if _looks_like_path(argument):
        raise UsageError(
            f"there is no folder {argument}",
            "Check the spelling" + ("." if path.is_absolute() else f"; the path is relative to {Path.cwd()}"),
        )
    first = argument.partition("/")[0]
    if Path(first).is_dir():
        raise UsageError(
            f"there is no folder {argument}, but {first} is a folder here",
            f"Write {HUB_SCHEME}{argument} if a repository on the hub is meant.",
        )
    return _repository(argument, argument)


def embedded_folder() -> Path:
    """The folder of the embedded checkpoint.

    Raises:
        EnvironmentProblem: this installation lacks it.
    """
    folder = files("draftproof").joinpath("data", EMBEDDED)
    if not isinstance(folder, Path) or not (folder / "config.json").is_file():
        raise EnvironmentProblem(
            "this installation lacks the embedded checkpoint 'tiny'",
            "Reinstall draftproof from a complete package.",
        )
    return folder


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _folder(argument: str, path: Path) -> FolderLocation:
    if not path.is_dir():
        raise UsageError(f"{argument} is a file", f"Name the folder that holds the checkpoint: {path.parent}")
    return FolderLocation(argument, path)


def _looks_like_path(argument: str) -> bool:
    return (
        argument.startswith(("/", "./", "../", "~", "."))
        or "\\" in argument
        or argument.endswith(("/", *_FILE_SUFFIXES))
        or argument.partition("@")[0].count("/") > 1
    )


def _repository(argument: str, name: str) -> HubLocation:
    repository, separator, revision = name.partition("@")
    valid = _REPOSITORY.fullmatch(repository) and ".." not in name and "--" not in repository
    if not valid or (separator and not _REVISION.fullmatch(revision)):
        raise UsageError(
            f"{argument!r} is neither a folder nor a repository",
            "Give a folder, organisation/name[@revision] on the hub, or 'tiny' for the embedded checkpoint.",
        )
    return HubLocation(argument, repository, revision or None)
