"""One request in, one stack out."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

import draftproof
from draftproof.errors import EnvironmentProblem, StackError, UsageError
from draftproof.stacks.cache_folder import cache_folder
from draftproof.stacks.find.candidates import choose_file, nearest_versions, version_of
from draftproof.stacks.find.completeness import require_complete
from draftproof.stacks.find.environments import (
    active_environments,
    distributions,
    read_bounded,
    this_environment,
)
from draftproof.stacks.find.folders import (
    OTHER_STACKS,
    installed_stack,
    package_root,
    project_requirements,
    stack_at,
)
from draftproof.stacks.find.index import Listing, list_files
from draftproof.stacks.find.kept_trees import KeptTree, TreeStore
from draftproof.stacks.find.pip_settings import PipSettings, read_pip_settings
from draftproof.stacks.find.progress import FetchProgress, SilentProgress
from draftproof.stacks.find.static_version import metadata_requirements
from draftproof.stacks.find.web import WebReader
from draftproof.stacks.find.wheels import keep_indexed_file, keep_local_wheel
from draftproof.stacks.request import StackRequest
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind


@dataclass(frozen=True)
class StackFinder:
    """Finds stacks as one process sees them.

    Attributes:
        environment: its variables: the cache folder, pip's settings, proxies.
        progress: of fetches.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    progress: FetchProgress = field(default_factory=SilentProgress)

    def find(self, request: StackRequest) -> Stack:
        """The stack that was asked for. A release is fetched when it is not in the cache.

        Raises:
            UsageError: the path is ambiguous or does not exist.
            StackError: there is no such stack, or it is incomplete.
            EnvironmentProblem: the index cannot be reached, or the cache cannot be written.
        """
        if request.path is not None:
            return self._at_path(request.path, request.kind)
        if request.kind is None:
            raise UsageError(f"--stack {request.text} names no stack")
        if request.kind is StackKind.NATIVE:
            return self._native()
        if request.release is not None:
            return self._release(request.kind, request.release)
        others = active_environments(self.environment)
        return installed_stack(request.kind, this_environment(self.environment), others)

    def _native(self) -> Stack:
        environment = this_environment(self.environment)
        root = Path(draftproof.__file__).parent.parent
        return Stack(
            kind=StackKind.NATIVE,
            version=draftproof.__version__,
            tree=SourceTree(root),
            origin=f"running from {root}",
            python=environment.python,
            beside=distributions(environment.sites),
        )

    def _at_path(self, path: Path, kind: StackKind | None) -> Stack:
        if not path.exists():
            raise UsageError(
                f"--stack: there is no {path}", "Name an environment, a source tree or a wheel file."
            )
        if path.is_file() and path.name.endswith((".whl", ".tar.gz")):
            return self._wheel_file(path.absolute(), kind)
        return stack_at(path.absolute(), kind)

    def _wheel_file(self, file: Path, kind: StackKind | None) -> Stack:
        name = re.match(r"[A-Za-z0-9._]+", file.name)
        known = next((item for item in OTHER_STACKS if name and name[0].lower() == item.package), None)
        if known is None or (kind is not None and kind is not known):
            wanted = kind.title if kind is not None else "SGLang or vLLM"
            raise StackError(
                f"{file.name} is no wheel of {wanted} by its name", "Keep the name that it was built with."
            )
        status = file.stat()
        state = f"{os.path.realpath(file)} {status.st_size} {status.st_mtime_ns}"
        version = _version_in_name(file.name)
        key = _key(known, version, state)
        store = self._store("files")
        kept = store.find(key)
        if kept is None:
            with store.fetching(key):
                kept = store.find(key) or keep_local_wheel(file, key, store, version)
        return _kept_stack(known, kept, f"wheel file {file}", ())

    def _release(self, kind: StackKind, version: str) -> Stack:
        settings = read_pip_settings(self.environment)
        key = _key(kind, version, " ".join(settings.sources))
        store = self._store("releases")
        kept = store.find(key)
        if kept is None:
            with store.fetching(key):
                kept = store.find(key) or self._fetch(kind, version, settings, key, store)
        place, file = kept.provenance.place, kept.provenance.file
        notes = () if kept.provenance.yanked is None else (_yanked_note(kept.provenance.yanked),)
        return _kept_stack(kind, kept, f"release {version} from {place} ({file})", notes)

    def _fetch(
        self, kind: StackKind, version: str, settings: PipSettings, key: str, store: TreeStore
    ) -> KeptTree:
        reader = WebReader(settings)
        listing = list_files(kind.package, settings, reader)
        wanted = Version(version)
        file = choose_file(listing.files, wanted)
        if file is None:
            raise _not_listed(kind, wanted, listing, settings)
        found = version_of(file)
        return keep_indexed_file(file, str(found), key, store, reader, self.progress)

    def _store(self, name: str) -> TreeStore:
        return TreeStore(cache_folder(self.environment) / "stacks" / name)


def _kept_stack(kind: StackKind, kept: KeptTree, origin: str, notes: tuple[str, ...]) -> Stack:
    folder = kept.folder
    root = package_root(folder, kind) or next(
        (root for below in sorted(folder.iterdir()) if (root := package_root(below, kind)) is not None),
        folder,
    )
    tree = SourceTree(root)
    require_complete(tree, kind, origin)
    metadata = next((read_bounded(file) for file in sorted(folder.glob("*.dist-info/METADATA"))), "")
    return Stack(
        kind=kind,
        version=kept.provenance.version,
        tree=tree,
        origin=origin,
        requires=metadata_requirements(metadata) or project_requirements(root),
        notes=notes,
    )


def _key(kind: StackKind, version: str, state: str) -> str:
    digest = hashlib.sha256(state.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{kind.package}-{re.sub('[^A-Za-z0-9.+]', '_', version)[:60]}-{digest}"


def _version_in_name(name: str) -> str:
    parts = name.removesuffix(".tar.gz").removesuffix(".whl").split("-")
    return parts[1] if len(parts) > 1 else ""


def _yanked_note(reason: str) -> str:
    return f"withdrawn from the index: {reason}" if reason else "withdrawn from the index"


def _not_listed(
    kind: StackKind, version: Version, listing: Listing, settings: PipSettings
) -> EnvironmentProblem:
    """Why there is no file: nothing could be asked, or what was asked does not have it."""
    if listing.unreachable:
        return EnvironmentProblem(
            f"{kind.value}=={version} is not in the cache and cannot be fetched: {listing.unreachable[0]}",
            "Fetch it once with a network, or name an installed one, a source tree or a wheel file.",
        )
    places = ", ".join(settings.sources) or "(no index is configured)"
    nearest = nearest_versions(listing.files, version)
    remedy = f"Nearest versions: {', '.join(nearest)}." if nearest else "Check pip's index-url."
    return StackError(f"no file of {kind.value}=={version} is listed by {places}", remedy)
