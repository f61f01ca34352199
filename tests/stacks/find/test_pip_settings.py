"""pip's settings, read from its own files and variables; pip itself is the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.find.pip_settings import (
    DEFAULT_INDEX,
    PipSettings,
    read_pip_settings,
    without_password,
)
from tests.support.stack_wheels import write_files


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Variables of a user without any settings; none of the machine's either."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


@pytest.fixture(autouse=True)
def no_system_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """/etc/pip.conf of this machine does not count."""
    opened = Path.open

    def open_elsewhere(path: Path, *arguments: object, **options: object) -> object:
        here = tmp_path / "no-such-file" if str(path) == "/etc/pip.conf" else path
        return opened(here, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_elsewhere)


def read(environment: dict[str, str], tmp_path: Path) -> PipSettings:
    return read_pip_settings(environment, prefix=tmp_path / "venv")


def test_without_settings_the_public_index_is_asked(home: dict[str, str], tmp_path: Path) -> None:
    assert read(home, tmp_path) == PipSettings()
    assert PipSettings().index_urls == (DEFAULT_INDEX,)


def test_later_files_win_and_variables_win_over_files(home: dict[str, str], tmp_path: Path) -> None:
    def index() -> str:
        return read(home, tmp_path).index_urls[0]

    write_files(tmp_path, {"xdg/pip/pip.conf": "[global]\nindex-url = https://global/simple/\n"})
    assert index() == "https://global/simple"
    write_files(tmp_path, {".config/pip/pip.conf": "[global]\nindex-url = https://user/simple\n"})
    assert index() == "https://user/simple"
    write_files(tmp_path, {"venv/pip.conf": "[global]\nindex_url = https://venv/simple\n"})
    assert index() == "https://venv/simple"
    write_files(tmp_path, {"named.conf": "[global]\nindex-url = https://named/simple\n"})
    home["PIP_CONFIG_FILE"] = str(tmp_path / "named.conf")
    assert index() == "https://named/simple"
    home["PIP_INDEX_URL"] = "https://variable/simple"
    assert index() == "https://variable/simple"
    home["PIP_CONFIG_FILE"] = os.devnull
    del home["PIP_INDEX_URL"]
    assert index() == DEFAULT_INDEX


def test_install_counts_over_global_and_other_commands_do_not(home: dict[str, str], tmp_path: Path) -> None:
    text = (
        "[install]\nindex-url = https://a\n[global]\nindex-url = https://b\n[list]\nindex-url = https://c\n"
    )
    write_files(tmp_path, {".config/pip/pip.conf": text})
    assert read(home, tmp_path).index_urls == ("https://a",)


def test_every_setting(home: dict[str, str], tmp_path: Path) -> None:
    text = """
        [global]
        extra-index-url =
            https://one/simple
            https://two/simple
        find-links = /wheels https://three/links.html
        trusted-host = one two:8080
        cert = /etc/ca.pem
        client-cert = /etc/me.pem
        proxy = http://proxy:3128
        timeout = 60
    """
    write_files(tmp_path, {".config/pip/pip.conf": "\n".join(line[8:] for line in text.splitlines())})
    settings = read(home, tmp_path)
    assert settings == PipSettings(
        index_urls=(DEFAULT_INDEX, "https://one/simple", "https://two/simple"),
        find_links=("/wheels", "https://three/links.html"),
        certificate="/etc/ca.pem",
        client_certificate="/etc/me.pem",
        proxy="http://proxy:3128",
        trusted_hosts=("one", "two:8080"),
        timeout=60.0,
    )


def test_no_index_leaves_find_links(home: dict[str, str], tmp_path: Path) -> None:
    settings = read({**home, "PIP_NO_INDEX": "true", "PIP_FIND_LINKS": "/wheels"}, tmp_path)
    assert settings.sources == ("/wheels",)


def test_certificates_of_the_environment_count_after_pips(home: dict[str, str], tmp_path: Path) -> None:
    home["REQUESTS_CA_BUNDLE"] = "/requests.pem"
    assert read(home, tmp_path).certificate == "/requests.pem"
    assert read({**home, "PIP_CERT": "/pip.pem"}, tmp_path).certificate == "/pip.pem"


@pytest.mark.parametrize("timeout", ["soon", "-1", "0", "nan", "inf"])
def test_a_timeout_that_is_none(home: dict[str, str], tmp_path: Path, timeout: str) -> None:
    with pytest.raises(EnvironmentProblem, match="no positive number of seconds"):
        read({**home, "PIP_TIMEOUT": timeout}, tmp_path)


def test_a_file_that_cannot_be_parsed_is_named(home: dict[str, str], tmp_path: Path) -> None:
    write_files(tmp_path, {".config/pip/pip.conf": "index-url = https://a\n"})
    with pytest.raises(EnvironmentProblem, match=r"pip\.conf cannot be read"):
        read(home, tmp_path)


def test_a_percent_sign_is_one(home: dict[str, str], tmp_path: Path) -> None:
    write_files(tmp_path, {".config/pip/pip.conf": "[global]\nindex-url = https://u:p%40ss@host/simple\n"})
    assert read(home, tmp_path).index_urls == ("https://u:p%40ss@host/simple",)


def test_passwords_are_not_among_the_sources() -> None:
    settings = PipSettings(index_urls=("https://user:secret@host:8080/simple",), find_links=("/wheels",))
    assert settings.sources == ("https://host:8080/simple", "/wheels")
    assert without_password("/a@b/c") == "/a@b/c"


@pytest.mark.parametrize("variables", [{}, {"PIP_INDEX_URL": "https://variable/simple"}])
def test_pip_reads_the_same(home: dict[str, str], tmp_path: Path, variables: dict[str, str]) -> None:
    write_files(
        tmp_path, {".config/pip/pip.conf": "[global]\nindex-url = https://user/simple\ntimeout = 5\n"}
    )
    environment = {**home, "PATH": os.environ["PATH"], **variables}
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    settings = read(environment, tmp_path)
    name = ":env:.index-url" if variables else "global.index-url"
    assert f"{name}={settings.index_urls[0]!r}" in listed
    assert f"global.timeout={str(int(settings.timeout))!r}" in listed
