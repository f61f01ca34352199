"""Which of the files that indexes list is the one to read for a version."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.tags import Tag, sys_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from draftproof.stacks.find.index import IndexFile


def choose_file(files: Iterable[IndexFile], version: Version) -> IndexFile | None:
    """The file to read for a version, None when nothing of that version is listed.

    Only .py members are read, so that any wheel will do: one for every platform, else one for this machine,
    else one for x86_64 Linux, else any; a source archive when there is no wheel. As for pip, a version
    without a local part ("0.33.0") is met by one that has one ("0.33.0+cu129"), after an exact one.
    """
    here = set(sys_tags())
    ranked = [
        (*rank, position, file)
        for position, file in enumerate(files)
        if (found := version_of(file)) is not None and _meets(found, version)
        for rank in [(found != version, _platform_rank(file, here))]
    ]
    return min(ranked, key=lambda entry: entry[:-1])[-1] if ranked else None


def version_of(file: IndexFile) -> Version | None:
    """The version in a file's name; None for a name that is none of a wheel or source archive."""
    try:
        if file.name.endswith(".whl"):
            return parse_wheel_filename(file.name)[1]
        return parse_sdist_filename(file.name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def nearest_versions(files: Iterable[IndexFile], version: Version, count: int = 5) -> tuple[str, ...]:
    """Versions that are listed and not withdrawn, those around the wanted one, in order."""
    known = sorted(
        {found for file in files if file.yanked is None and (found := version_of(file)) is not None}
    )
    below = sum(1 for found in known if found < version)
    start = max(0, min(below - (count + 1) // 2, len(known) - count))
    return tuple(str(found) for found in known[start : start + count])


def _meets(found: Version, wanted: Version) -> bool:
    return found == wanted or (wanted.local is None and Version(found.public) == wanted)


def _platform_rank(file: IndexFile, here: set[Tag]) -> int:
    if not file.name.endswith(".whl"):
        return 4
    tags = parse_wheel_filename(file.name)[3]
    platforms = {tag.platform for tag in tags}
    if "any" in platforms:
        return 0
    if tags & here:
        return 1
    return 2 if any("linux" in name and name.endswith("x86_64") for name in platforms) else 3
