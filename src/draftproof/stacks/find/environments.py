"""Python environments on this machine, read as folders: where packages are installed, and which.

No interpreter is started and nothing is imported. An editable installation is followed to its source by what
it left behind: direct_url.json, .pth files with a path in them, or the mapping of an editable finder.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from draftproof.errors import UsageError
from draftproof.stacks.stack import Distribution

MAX_TEXT_BYTES = 1 << 20
SITE_NAMES = ("site-packages", "dist-packages")
"""What folders of installed packages are called."""
_SITES = (
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "local/lib/python3*/site-packages",
    "local/lib/python3*/dist-packages",
    "lib/python3*/dist-packages",
    "lib/python3/dist-packages",
    "Lib/site-packages",
)
_METADATA_FOLDER = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[^-]+)?\.(?:dist|egg)-info")


@dataclass(frozen=True)
class Environment:
    """One Python environment.

    Attributes:
        folder: what it is called by.
        sites: the folders that packages are imported from, first ones first.
        python: its interpreter; None when there is none.
    """

    folder: Path
    sites: tuple[Path, ...]
    python: Path | None


@dataclass(frozen=True)
class InstalledPackage:
    """A package that is installed.

    Attributes:
        root: the folder that holds the package's folder.
        metadata: its .dist-info folder; None when there is none.
        editable: the source is used where it lies.
    """

    root: Path
    metadata: Path | None
    editable: bool


def this_environment(environment: Mapping[str, str]) -> Environment:
    """The environment that draftproof runs in, without the folder that it was started from."""
    listed = [Path(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sites = [Path(path) for path in sys.path if Path(path).name in SITE_NAMES]
    found = tuple(dict.fromkeys(path for path in (*listed, *sites) if path.is_dir()))
    return Environment(Path(sys.prefix), found, Path(sys.executable) if sys.executable else None)


def active_environments(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders of the environments that a shell uses: the activated one, and that of its `python3`."""
    named = [environment[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)]
    python = shutil.which("python3", path=environment.get("PATH", ""))
    folders = [Path(name) for name in named] + ([Path(python).parent.parent] if python else [])
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def environment_at(path: Path) -> Environment | None:
    """The environment that a folder is, or that an interpreter belongs to; None when it is neither.

    Raises:
        UsageError: the path is an interpreter without an environment around it.
    """
    if path.is_file() and re.fullmatch(r"(python|pypy)[\d.]*(\.exe)?", path.name):
        # bin/python of a virtual environment is a link to another one's: the link's own place counts.
        folder = path.absolute().parent.parent
        environment = _environment(folder, path.absolute())
        if environment is None:
            raise UsageError(f"no packages are installed beside {path}", "Name the environment's folder.")
        return environment
    if path.is_dir():
        return _environment(path.absolute(), None)
    return None


def find_package(environment: Environment, package: str) -> InstalledPackage | None:
    """Where a package of an environment lies; None when it is not installed there."""
    for site in environment.sites:
        metadata = _metadata(site, package)
        if is_package(site / package):
            return InstalledPackage(_real_root(site, package), metadata, editable=False)
        for root in _editable_roots(site, package, metadata):
            if is_package(root / package):
                return InstalledPackage(_real_root(root, package), metadata, editable=True)
    return None


def distributions(sites: tuple[Path, ...]) -> tuple[Distribution, ...]:
    """Every distribution of some folders, by name; of two with the same name the first one counts."""
    found: dict[str, Distribution] = {}
    for site in sites:
        for name in _names(site):
            match = _METADATA_FOLDER.fullmatch(name)
            if match is not None:
                normal = canonicalize_name(match["name"])
                found.setdefault(normal, Distribution(normal, match["version"]))
    return tuple(found[name] for name in sorted(found))


def is_package(folder: Path) -> bool:
    """A folder with the module that makes it a package."""
    return (folder / "__init__.py").is_file()


def read_bounded(file: Path) -> str:
    """Text of a small file; empty when it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_TEXT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _environment(folder: Path, python: Path | None) -> Environment | None:
    settings = _venv_settings(folder)
    version = settings.get("version_info") or settings.get("version") or _version_of(python)
    sites = _sites(folder, version)
    if settings.get("include-system-site-packages") == "true" and settings.get("home"):
        sites = (*sites, *_sites(Path(settings["home"]).parent, version))
    if not sites:
        return None
    interpreters = (folder / "bin" / "python", folder / "bin" / "python3", folder / "Scripts" / "python.exe")
    found = python or next((file for file in interpreters if file.is_file()), None)
    return Environment(folder, sites, found)


def _venv_settings(folder: Path) -> dict[str, str]:
    lines = read_bounded(folder / "pyvenv.cfg").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip() for name, sign, value in pairs if sign}


def _version_of(python: Path | None) -> str:
    """The version in the name of an interpreter, through its links; empty when the name has none."""
    if python is None:
        return ""
    match = re.fullmatch(r"python(3\.\d+)", Path(os.path.realpath(python)).name)
    return match[1] if match else ""


def _sites(folder: Path, version: str) -> tuple[Path, ...]:
    """Folders of packages, those of the given Python version first."""
    minor = ".".join(version.split(".")[:2])
    found = [path for pattern in _SITES for path in sorted(folder.glob(pattern)) if path.is_dir()]
    matching = [path for path in found if path.parent.name in (f"python{minor}", "python3", "Lib")]
    # lib64 is often a link to lib.
    real = {os.path.realpath(path): path for path in reversed(matching or found)}
    return tuple(reversed(real.values()))


def _metadata(site: Path, package: str) -> Path | None:
    for name in _names(site):
        match = _METADATA_FOLDER.fullmatch(name)
        if match is not None and name.endswith(".dist-info") and canonicalize_name(match["name"]) == package:
            return site / name
    return None


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except OSError:
        return ()


def _real_root(root: Path, package: str) -> Path:
    """Behind links, so that files are inside the tree: to the package's folder, or each file's own one.

    Links of single files are made by setuptools' strict editable mode, and by uv from its cache.
    """
    real = Path(os.path.realpath(root / package / "__init__.py")).parent
    return real.parent if real.name == package else root


def _editable_roots(site: Path, package: str, metadata: Path | None) -> Iterator[Path]:
    """Folders that may hold the package, by what an editable installation leaves in a site."""
    if metadata is not None:
        project = _project_folder(metadata)
        if project is not None:
            yield from (project, project / "python", project / "src")
    for name in _names(site):
        if name.endswith(".pth"):
            for line in read_bounded(site / name).splitlines():
                # Other lines are code or comments.
                if line.strip() and not line.startswith(("import ", "import\t", "#")):
                    yield site / line.strip()
        elif name.startswith("__editable__") and name.endswith("_finder.py"):
            yield from _mapped_roots(site / name, package)


def _project_folder(metadata: Path) -> Path | None:
    try:
        address = json.loads(read_bounded(metadata / "direct_url.json"))["url"]
        parts = urlsplit(address)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _mapped_roots(finder: Path, package: str) -> Iterator[Path]:
    """From the MAPPING of setuptools' editable finder: {"sglang": "/src/python/sglang"}."""
    try:
        module = ast.parse(read_bounded(finder))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    for statement in module.body:
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        targets = statement.targets if isinstance(statement, ast.Assign) else [target]
        if any(isinstance(name, ast.Name) and name.id == "MAPPING" for name in targets):
            yield from _mapped(statement, package)


def _mapped(statement: ast.stmt, package: str) -> Iterator[Path]:
    value = getattr(statement, "value", None)
    try:
        mapping = ast.literal_eval(value) if value is not None else {}
    except (ValueError, TypeError, MemoryError, RecursionError):
        return
    if isinstance(mapping, dict) and isinstance(mapping.get(package), str):
        path = Path(mapping[package])
        if path.name == package:
            yield path.parent
