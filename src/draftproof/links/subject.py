"""A checkpoint as the subject of a report: its name, its place, and the commands that show it to others."""

from __future__ import annotations

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.location import FolderLocation
from draftproof.evidence import Subject
from draftproof.links.shell_commands import ShellCommands


def subject_of(checkpoint: Checkpoint) -> Subject:
    """What the report says that it is about."""
    content = checkpoint.config.config.content or {}
    names = content.get("architectures")
    architecture = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    return Subject(
        name=checkpoint.location.argument,
        location=_base(checkpoint),
        architecture=architecture[:200],
        revision=_commit(checkpoint),
    )


def commands_for(checkpoint: Checkpoint) -> ShellCommands:
    """Commands about a checkpoint, for whoever wants to see for themselves."""
    return ShellCommands(
        name=checkpoint.location.argument, base=_base(checkpoint), remote=checkpoint.folder is None
    )


def _base(checkpoint: Checkpoint) -> str:
    if checkpoint.folder is not None:
        # A relative folder stays as it was given: the commands are meant for the same working directory.
        location = checkpoint.location
        return str(location.folder if isinstance(location, FolderLocation) else checkpoint.folder)
    # Imported already, because the checkpoint is read through it; a folder never pays for the import.
    from draftproof.checkpoint.hub_source import HubSource

    if isinstance(checkpoint.source, HubSource):
        return checkpoint.source.url("").rstrip("/")
    return checkpoint.source.label


def _commit(checkpoint: Checkpoint) -> str:
    if checkpoint.folder is None:
        from draftproof.checkpoint.hub_source import HubSource

        if isinstance(checkpoint.source, HubSource):
            return checkpoint.source.commit
    elif not isinstance(checkpoint.location, FolderLocation):
        # A snapshot in the hub's cache: its folder is named after the commit.
        return checkpoint.folder.name
    return ""
