"""Where the training text comes from: archives on disk, read as (path, text), with their licences.

An archive is a wheel, an sdist or a folder. Only text whose licence is permissive by the package's own
metadata is used; a package whose metadata says nothing that can be read is refused by name.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

MAX_FILE_BYTES = 300_000
CODE_SUFFIXES = (".py",)
PROSE_SUFFIXES = (".rst", ".md", ".rst.txt")
# Folders whose text is a copy of somebody else's, generated, or data.
SKIPPED_FOLDERS = re.compile(
    r"(^|/)(_?vendor(ed)?|third_?party|externals?|extern|site-packages|node_modules|locale|locales|generated"
    r"|migrations|fixtures|_static|build|test_data|testdata)(/|$)"
)
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python[- ]2\.0|Python Software Foundation|ISC|Zlib|HPND|Unlicense|0BSD|Zope|ZPL"
    r"|CC0|Public Domain|MPL-free)\b",
    re.IGNORECASE,
)
RESTRICTED = re.compile(
    r"\b(A?GPL|LGPL|GNU|MPL|Mozilla|EUPL|SSPL|BUSL|CC[- ]BY[- ](NC|SA|ND)|Proprietary)", re.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """One archive and what its metadata says.

    Attributes:
        name: normalised project name.
        version: as the metadata states it.
        licence: the licence expression, the licence field, or the licence classifiers.
        path: a wheel, an sdist or a folder.
    """

    name: str
    version: str
    licence: str
    path: Path


class UnusableSource(Exception):
    """The licence is not permissive, or cannot be read."""


def read_source(path: Path) -> Source:
    """What a wheel or an sdist says of itself.

    Raises:
        UnusableSource: the licence is not known to be permissive.
    """
    metadata = HeaderParser().parsestr(_metadata_text(path))
    name = re.sub(r"[-_.]+", "-", str(metadata["Name"])).lower()
    licence = _licence(
        metadata.get("License-Expression"), metadata.get("License"), metadata.get_all("Classifier")
    )
    if RESTRICTED.search(licence) or not PERMISSIVE.search(licence):
        raise UnusableSource(f"{name}: licence {licence!r}")
    return Source(name, str(metadata["Version"]), licence, path)


def read_texts(source: Source) -> Iterator[tuple[str, str]]:
    """Every Python and documentation file of a source: (path inside it, text)."""
    for inner, data in _members(source.path):
        if not inner.endswith(CODE_SUFFIXES + PROSE_SUFFIXES) or SKIPPED_FOLDERS.search(inner):
            continue
        if not 200 <= len(data) <= MAX_FILE_BYTES:
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        yield inner, text.replace("\r\n", "\n").expandtabs(4)


def long_description(source: Source) -> str:
    """The README that a wheel or sdist carries in its metadata; empty for a folder."""
    if source.path.is_dir():
        return ""
    return str(HeaderParser().parsestr(_metadata_text(source.path)).get_payload())


def _licence(expression: str | None, field: str | None, classifiers: list[str] | None) -> str:
    if expression:
        return expression
    named = [line.split("::")[-1].strip() for line in classifiers or () if line.startswith("License ::")]
    named = [name for name in named if name != "OSI Approved"]
    if named:
        return " AND ".join(named)
    # Some packages paste the whole licence; its first line names it.
    return (field or "").strip().split("\n")[0][:80]


def _metadata_text(path: Path) -> str:
    wanted = re.compile(r"^[^/]+\.dist-info/METADATA$|^[^/]+/PKG-INFO$")
    for inner, data in _members(path):
        if wanted.match(inner):
            return data.decode("utf-8", "replace")
    raise UnusableSource(f"{path.name}: no metadata")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(path)), file.read_bytes()
    elif path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if _may_matter(info.filename):
                    yield info.filename, archive.read(info)
    else:
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile() and _may_matter(member.name):
                    stream = tar.extractfile(member)
                    if stream is not None:
                        yield member.name, stream.read()


def _may_matter(name: str) -> bool:
    return name.endswith((*CODE_SUFFIXES, *PROSE_SUFFIXES, "METADATA", "PKG-INFO"))
