"""What a checkpoint's name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.checkpoint import location
from draftproof.checkpoint.location import FolderLocation, HubLocation, resolve
from draftproof.errors import EnvironmentProblem, UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["model", "Qwen/Qwen3.5-9B", "a b", "x.safetensors", "tiny", "org/name@v1"])
def test_a_folder_that_exists_wins_over_every_other_reading(here: Path, name: str) -> None:
    (here / name).mkdir(parents=True)
    assert resolve(name) == FolderLocation(name, Path(name))


def test_home_is_expanded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    (here / "model").mkdir()
    assert resolve("~/model") == FolderLocation("~/model", here / "model")


@pytest.mark.parametrize(
    ("argument", "repository", "revision"),
    [
        ("Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-9B", None),
        ("Qwen/Qwen3.5-9B@main", "Qwen/Qwen3.5-9B", "main"),
        ("org/name@refs/pr/3", "org/name", "refs/pr/3"),
        ("org/name_with.dots-1@98915d83", "org/name_with.dots-1", "98915d83"),
        ("hf://org/name@v1.0", "org/name", "v1.0"),
    ],
)
def test_a_repository_with_or_without_a_revision(
    argument: str, repository: str, revision: str | None
) -> None:
    assert resolve(argument) == HubLocation(argument, repository, revision)


@pytest.mark.parametrize(
    "argument",
    [
        "/nowhere/model",
        "./org/name",
        "../name",
        "~/nothing",
        "models/org/name",
        "org/name/",
        "C:\\models",
        ".hidden",
    ],
)
def test_a_path_that_is_not_there_is_named_and_never_a_repository(argument: str) -> None:
    with pytest.raises(UsageError, match="there is no folder") as caught:
        resolve(argument)
    assert argument in str(caught.value)
    assert "Check the spelling" in caught.value.remedy


def test_only_a_relative_path_is_said_to_be_relative() -> None:
    for argument, relative in (("/nowhere/at/all", False), ("./nowhere", True)):
        with pytest.raises(UsageError) as caught:
            resolve(argument)
        assert ("relative" in caught.value.remedy) is relative


def test_a_folder_of_the_first_name_makes_a_path_likely(here: Path) -> None:
    (here / "models").mkdir()
    with pytest.raises(UsageError, match="models is a folder here") as caught:
        resolve("models/qwen")
    assert "hf://models/qwen" in caught.value.remedy
    assert resolve("hf://models/qwen") == HubLocation("hf://models/qwen", "models/qwen")


def test_a_file_is_refused_with_its_folder_as_remedy(here: Path) -> None:
    (here / "model.safetensors").touch()
    with pytest.raises(UsageError, match="is a file"):
        resolve("model.safetensors")


@pytest.mark.parametrize(
    "argument",
    [
        "gpt2",
        "a b/c",
        "org/",
        "org//name",
        "@main",
        "org/name@",
        "org/na..me",
        "org/a--b@x y",
        "hf://x",
        "-/-",
        "x/y@../z",
    ],
)
def test_what_is_nothing_of_the_three_is_a_usage_error(argument: str) -> None:
    with pytest.raises(UsageError):
        resolve(argument)


@pytest.mark.parametrize("argument", ["", "  ", "a\0b", "x" * 5000, "org/" + "x" * 5000])
def test_absurd_names_are_usage_errors(argument: str) -> None:
    with pytest.raises(UsageError):
        resolve(argument)


def test_the_embedded_checkpoint(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = here / "package"
    (package / "data" / "tiny").mkdir(parents=True)
    monkeypatch.setattr(location, "files", lambda name: package)
    with pytest.raises(EnvironmentProblem, match="lacks the embedded checkpoint"):
        resolve("tiny")
    (package / "data" / "tiny" / "config.json").write_text("{}")
    assert resolve("tiny") == FolderLocation("tiny", package / "data" / "tiny", embedded=True)
