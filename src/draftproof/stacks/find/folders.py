"""A stack in a folder: an environment, a git checkout, an unpacked wheel, or a bare source tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from draftproof.errors import StackError, UsageError
from draftproof.stacks.find.completeness import changed_note, require_complete, require_recorded
from draftproof.stacks.find.environments import (
    SITE_NAMES,
    Environment,
    InstalledPackage,
    distributions,
    environment_at,
    find_package,
    is_package,
    read_bounded,
)
from draftproof.stacks.find.git_checkout import Checkout, find_checkout
from draftproof.stacks.find.static_version import (
    metadata_requirements,
    metadata_version,
    requirements_in_project,
    version_in_project,
    version_in_source,
)
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack, StackKind

OTHER_STACKS = (StackKind.SGLANG, StackKind.VLLM)
"""The stacks that a path can hold."""


def installed_stack(kind: StackKind, environment: Environment, others: tuple[Path, ...] = ()) -> Stack:
    """The stack of an environment.

    Args:
        kind: which one.
        environment: where it has to be.
        others: folders of environments that the user may have meant; named when the stack is in one of them.

    Raises:
        StackError: it is not installed there, or only half.
    """
    package = find_package(environment, kind.package)
    if package is None:
        for folder in others:
            other = environment_at(folder)
            if other is not None and find_package(other, kind.package) is not None:
                raise StackError(
                    f"{kind.title} is not installed in {environment.folder}, but in {folder}",
                    f"Write: --stack {kind.value}@{folder}.",
                )
        version = "0.33.0" if kind is StackKind.VLLM else "0.5.23"
        raise StackError(
            f"{kind.title} is not installed in {environment.folder}",
            f"Name where it is, --stack {kind.value}@PATH (an environment, a source tree or a wheel file), "
            f"or a release, for example --stack {kind.value}=={version}.",
        )
    return _from_package(kind, environment, package)


def stack_at(path: Path, kind: StackKind | None) -> Stack:
    """The stack that a folder or an interpreter's environment holds.

    Args:
        path: exists.
        kind: which one; None when the folder has to show it.

    Raises:
        UsageError: it holds both and `kind` is None.
        StackError: it holds none, another one, or only a part of one.
    """
    roots = {found: root for found in OTHER_STACKS if (root := _root_in(path, found)) is not None}
    if roots:
        chosen = _choose(path, kind, tuple(roots))
        around = _environment_around(roots[chosen])
        return installed_stack(chosen, around) if around else _from_tree(chosen, path, roots[chosen])
    environment = environment_at(path)
    if environment is None:
        raise StackError(
            f"{path} holds neither an sglang nor a vllm package, and is no Python environment",
            "Name the folder that holds the package's folder, an environment, or a wheel file.",
        )
    found = tuple(known for known in OTHER_STACKS if find_package(environment, known.package) is not None)
    if not found and kind is None:
        raise StackError(
            f"neither SGLang nor vLLM is installed in {path}", "Name another environment or a source tree."
        )
    return installed_stack(_choose(path, kind, found or (kind,)) if kind is None else kind, environment)


def package_root(folder: Path, kind: StackKind) -> Path | None:
    """The folder in an unpacked archive or checkout that holds the package; None when there is none."""
    return next((root for root in _roots_below(folder) if is_package(root / kind.package)), None)


def project_requirements(root: Path) -> tuple[str, ...]:
    """What the files of a project ask for, in the folder that holds the package or the one above."""
    for folder in (root, root.parent):
        stated = metadata_requirements(read_bounded(folder / "PKG-INFO")) or requirements_in_project(folder)
        if stated:
            return stated
    return ()


def _root_in(path: Path, kind: StackKind) -> Path | None:
    if not path.is_dir():
        return None
    if path.name == kind.package and is_package(path):
        return path.parent
    return package_root(path, kind)


def _environment_around(root: Path) -> Environment | None:
    """The environment whose folder of packages this is: LIB/pythonX.Y/site-packages; None when it is none."""
    if root.name not in SITE_NAMES or len(root.parents) < 3:
        return None
    environment = environment_at(root.parents[2])
    # The first place that has the package counts, so that it has to be this one.
    return environment if environment is not None and environment.sites[:1] == (root,) else None


def _roots_below(folder: Path) -> Iterator[Path]:
    """SGLang keeps its package below python/, some projects below src/, archives below NAME-VERSION/."""
    yield from (folder, folder / "python", folder / "src")


def _choose(path: Path, kind: StackKind | None, found: tuple[StackKind | None, ...]) -> StackKind:
    known = tuple(item for item in found if item is not None)
    if kind is not None:
        if kind not in known:
            raise StackError(f"{path} holds {known[0].title}, not {kind.title}", "Name another folder.")
        return kind
    if len(known) > 1:
        forms = " or ".join(f"--stack {item.value}@{path}" for item in known)
        raise UsageError(f"{path} holds {' and '.join(item.title for item in known)}", f"Say {forms}.")
    return known[0]


def _from_package(kind: StackKind, environment: Environment, package: InstalledPackage) -> Stack:
    tree = SourceTree(package.root)
    place = f"installed in {environment.folder}"
    checkout = find_checkout(package.root) if package.editable else None
    origin = (
        f"{place}, editable from {_checkout_words(checkout, package.root)}" if package.editable else place
    )
    require_complete(tree, kind, origin)
    metadata = read_bounded(package.metadata / "METADATA") if package.metadata is not None else ""
    changed: tuple[str, ...] = ()
    if package.metadata is not None and not package.editable:
        changed = require_recorded(tree, kind, package.metadata, origin)
    stated = metadata_version(metadata) if not package.editable else ""
    return Stack(
        kind=kind,
        version=stated or _version(tree, kind, package.root, checkout) or metadata_version(metadata),
        tree=tree,
        origin=origin,
        python=environment.python,
        beside=distributions(environment.sites),
        requires=metadata_requirements(metadata) or project_requirements(package.root),
        notes=changed_note(changed),
    )


def _from_tree(kind: StackKind, path: Path, root: Path) -> Stack:
    tree = SourceTree(root)
    # A folder of installed packages has many; the stack's own one says that it was installed or unpacked.
    package = find_package(Environment(path, (root,), None), kind.package)
    metadata_folder = package.metadata if package is not None else None
    checkout = None if metadata_folder is not None else find_checkout(root)
    origin = _checkout_words(checkout, path)
    require_complete(tree, kind, origin)
    changed: tuple[str, ...] = ()
    metadata = ""
    if metadata_folder is not None:
        metadata = read_bounded(metadata_folder / "METADATA")
        changed = require_recorded(tree, kind, metadata_folder, origin)
    return Stack(
        kind=kind,
        version=metadata_version(metadata) or _version(tree, kind, root, checkout),
        tree=tree,
        origin=origin,
        beside=distributions((root,)) if root.name in SITE_NAMES else None,
        requires=metadata_requirements(metadata) or project_requirements(root),
        notes=changed_note(changed),
    )


def _version(tree: SourceTree, kind: StackKind, root: Path, checkout: Checkout | None) -> str:
    """The strongest statement first: a tag on the commit, a constant in the package, the project's file."""
    tag = checkout.version if checkout is not None else ""
    if tag:
        return tag
    stated = version_in_source(tree, kind.package) or version_in_project(root)
    return stated or version_in_project(root.parent) or metadata_version(read_bounded(root / "PKG-INFO"))


def _checkout_words(checkout: Checkout | None, path: Path) -> str:
    if checkout is None:
        return f"source tree {path}"
    commit = f"commit {checkout.commit[:12]}" if checkout.commit else "an unknown commit"
    return f"git checkout {checkout.folder} at {commit}"
