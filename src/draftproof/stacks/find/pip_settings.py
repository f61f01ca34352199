"""Where pip is configured to find packages: read from pip's own configuration files and `PIP_*` variables.

The files are parsed here, since asking pip takes half a second each time. Their places, their order and the
names of the settings are those of pip's documentation ("Configuration"): global, user and virtual
environment, then `PIP_CONFIG_FILE`, then `PIP_*` variables, which replace what files say. Of the sections,
`[global]` and `[install]` count: what is asked for is the version that somebody is about to install.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from draftproof.errors import EnvironmentProblem

DEFAULT_INDEX = "https://pypi.org/simple"
DEFAULT_TIMEOUT_SECONDS = 15.0
MAX_FILE_BYTES = 1 << 20

_SECTIONS = ("global", "install")
_TRUE = ("1", "true", "yes", "on", "y", "t")


@dataclass(frozen=True)
class PipSettings:
    """What pip is told about package indexes.

    Attributes:
        index_urls: simple indexes, the main one first; empty when there is to be none. May hold passwords.
        find_links: folders and pages that link to files; may hold passwords.
        certificate: file or folder of certificates to trust instead of the system's.
        client_certificate: file with a certificate and key that identify this client.
        proxy: address of a proxy; None takes the system's.
        trusted_hosts: "host" or "host:port" that may have an invalid certificate, or none.
        timeout: seconds to wait for an answer.
    """

    index_urls: tuple[str, ...] = (DEFAULT_INDEX,)
    find_links: tuple[str, ...] = ()
    certificate: str | None = None
    client_certificate: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def sources(self) -> tuple[str, ...]:
        """Every place that is asked, without passwords, for messages and keys of caches."""
        return tuple(without_password(place) for place in (*self.index_urls, *self.find_links))


def without_password(address: str) -> str:
    """An address without the user and password that stand before the host."""
    parts = urlsplit(address)
    if not parts.scheme or "@" not in parts.netloc:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_pip_settings(environment: Mapping[str, str], prefix: Path = Path(sys.prefix)) -> PipSettings:
    """The settings in force.

    Args:
        environment: variables of the process.
        prefix: folder of the virtual environment, which may hold a pip.conf.

    Raises:
        EnvironmentProblem: a file cannot be parsed, or a number in it is none.
    """
    values: dict[str, str] = {}
    for file in _files(environment, prefix):
        values |= _read_file(file)
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    certificate = values.get("cert") or next(
        (environment[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if environment.get(name)),
        None,
    )
    indexes = (values.get("index-url", DEFAULT_INDEX), *values.get("extra-index-url", "").split())
    without_index = values.get("no-index", "").strip().lower() in _TRUE
    return PipSettings(
        index_urls=() if without_index else tuple(address.rstrip("/") for address in indexes),
        find_links=tuple(values.get("find-links", "").split()),
        certificate=certificate,
        client_certificate=values.get("client-cert"),
        proxy=values.get("proxy"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=_seconds(values.get("timeout", values.get("default-timeout", ""))),
    )


def _files(environment: Mapping[str, str], prefix: Path) -> Iterator[Path]:
    """Configuration files in the order in which pip reads them; later ones win."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(environment.get("HOME") or Path.home())
    for folder in reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    mac = home / "Library" / "Application Support" / "pip"
    if sys.platform == "darwin" and mac.is_dir():
        yield mac / "pip.conf"
    else:
        yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield prefix / "pip.conf"
    if named:
        yield Path(named)


def _read_file(file: Path) -> dict[str, str]:
    """Settings of the sections that count; none when the file is not there or may not be read."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(MAX_FILE_BYTES)
        parser.read_string(text, source=str(file))
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        problem = str(error).splitlines()[0]
        raise EnvironmentProblem(f"pip's configuration {file} cannot be read: {problem}") from error
    return {
        name.replace("_", "-"): value.strip()
        for section in _SECTIONS
        if parser.has_section(section)
        for name, value in parser.items(section)
    }


def _seconds(text: str) -> float:
    if not text.strip():
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise EnvironmentProblem(f"pip's timeout is {text!r}, which is no positive number of seconds")
    return seconds
