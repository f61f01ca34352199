"""Repositories on the hub: what is fetched, what comes from the cache, and every refusal in one line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download, snapshot_download

from draftproof.checkpoint import hub_source
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.hub_source import HubSource
from draftproof.checkpoint.source import LocalSource
from draftproof.errors import CheckpointError, EnvironmentProblem, UsageError
from tests.support.hub_server import HubServer
from tests.support.raw_safetensors import RawTensor, write_safetensors

NAME = "someone/model"
SPARSE_BYTES = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One small tensor, and one of a gibibyte of which nothing is on disk."""
    made = tmp_path / "repository"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "qwen3_5"}')
    write_safetensors(made / "model.safetensors", {"a": RawTensor("U8", (4,), b"abcd")})
    header = b'{"big":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (SPARSE_BYTES, SPARSE_BYTES)
    with (made / "mtp.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + SPARSE_BYTES)
    return made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_source, "PAUSE_SECONDS", 0.0)


def test_headers_are_fetched_and_data_is_not(hub: HubServer, folder: Path) -> None:
    hub.add(NAME, folder)
    checkpoint = open_checkpoint(NAME)
    assert isinstance(checkpoint.source, HubSource)
    assert set(checkpoint.inventory.tensors) == {"a"}
    assert [entry.name for entry in checkpoint.inventory.unindexed] == ["big"]
    # A client that closes early still has what was under way: a header costs its request, not the file.
    assert hub.bytes_served < SPARSE_BYTES / 100
    assert checkpoint.read_tensor_bytes(checkpoint.inventory.tensors["a"]) == b"abcd"
    assert checkpoint.read_rows(checkpoint.inventory.unindexed[0], SPARSE_BYTES - 3, 3) == b"\0\0\0"


def test_a_branch_that_moves_does_not_change_what_is_read(hub: HubServer, folder: Path) -> None:
    repository = hub.add(NAME, folder, branches=("main", "other"))
    source = open_checkpoint(f"{NAME}@other").source
    assert isinstance(source, HubSource)
    assert source.commit == repository.commit
    assert repository.commit in source.url("config.json")


def test_a_complete_snapshot_is_read_from_the_cache(hub: HubServer, folder: Path) -> None:
    (folder / "mtp.safetensors").unlink()
    hub.add(NAME, folder)
    snapshot_download(NAME)
    before = hub.bytes_served
    checkpoint = open_checkpoint(NAME)
    assert isinstance(checkpoint.source, LocalSource)
    assert set(checkpoint.inventory.tensors) == {"a"}
    assert not [request for request in hub.requests if "resolve" in request.path and request.sent > 4096]
    assert hub.bytes_served - before < 4096


def test_a_snapshot_that_lacks_files_of_the_repository_is_not_complete(hub: HubServer, folder: Path) -> None:
    """The download left out a side file that no index names: reading the cache would not see it."""
    hub.add(NAME, folder)
    snapshot_download(NAME, ignore_patterns=["mtp.safetensors"])
    checkpoint = open_checkpoint(NAME)
    assert isinstance(checkpoint.source, HubSource)
    assert [entry.name for entry in checkpoint.inventory.unindexed] == ["big"]


def test_offline_reads_the_cache_and_asks_nothing(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mtp.safetensors").unlink()
    hub.add(NAME, folder)
    snapshot_download(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requests)
    assert set(open_checkpoint(NAME).inventory.tensors) == {"a"}
    assert len(hub.requests) == asked


def test_offline_without_a_complete_snapshot_is_one_line_at_once(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, folder)
    hf_hub_download(NAME, "config.json")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requests)
    for name in (NAME, "someone/unknown"):
        started = time.monotonic()
        with pytest.raises(EnvironmentProblem, match=f"{name} is not complete in the cache") as caught:
            open_checkpoint(name)
        assert "HF_HUB_OFFLINE" in caught.value.remedy
        assert time.monotonic() - started < 0.5
    assert len(hub.requests) == asked


def test_an_unreachable_hub_falls_back_to_a_complete_snapshot(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mtp.safetensors").unlink()
    hub.add(NAME, folder)
    snapshot_download(NAME)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert set(open_checkpoint(NAME).inventory.tensors) == {"a"}
    with pytest.raises(EnvironmentProblem, match=r"127\.0\.0\.1:9 cannot be reached"):
        open_checkpoint("someone/unknown")


def test_a_missing_repository_and_a_missing_revision_are_usage_errors(hub: HubServer, folder: Path) -> None:
    hub.add(NAME, folder)
    with pytest.raises(UsageError, match="no repository someone/missing"):
        open_checkpoint("someone/missing")
    with pytest.raises(UsageError, match="has no revision nowhere"):
        open_checkpoint(f"{NAME}@nowhere")
    assert len(hub.requests) == 2


def test_a_gated_repository_says_where_to_ask(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, folder, gated=True, allowed=("hf_allowed",))
    with pytest.raises(EnvironmentProblem, match=f"{NAME} is gated") as caught:
        open_checkpoint(NAME)
    assert f"{hub.url}/{NAME}" in caught.value.remedy
    monkeypatch.setenv("HF_TOKEN", "hf_allowed")
    assert set(open_checkpoint(NAME).inventory.tensors) == {"a"}


def test_a_private_repository_needs_the_token(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, folder, token="hf_mine")
    with pytest.raises(UsageError, match="or it is private"):
        open_checkpoint(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    assert open_checkpoint(NAME).config.config.present


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(hub: HubServer, folder: Path, status: int) -> None:
    hub.add(NAME, folder)
    hub.fail_next(status, 2)
    assert open_checkpoint(NAME).config.config.present


def test_a_hub_that_stays_broken_is_an_environment_problem(hub: HubServer, folder: Path) -> None:
    hub.add(NAME, folder)
    hub.fail_next(503, 100)
    with pytest.raises(EnvironmentProblem, match="answered 503"):
        open_checkpoint(NAME)
    assert len(hub.requests) == hub_source.ATTEMPTS


def test_a_server_without_ranges_is_read_from_the_front_only(hub: HubServer, folder: Path) -> None:
    hub.honours_ranges = False
    hub.add(NAME, folder)
    checkpoint = open_checkpoint(NAME)
    assert checkpoint.read_tensor_bytes(checkpoint.inventory.tensors["a"]) == b"abcd"
    with pytest.raises(EnvironmentProblem, match="does not answer range requests"):
        checkpoint.read_rows(checkpoint.inventory.unindexed[0], SPARSE_BYTES - 3, 3)


def test_ranges_outside_a_file_are_refused_without_a_request(hub: HubServer, folder: Path) -> None:
    hub.add(NAME, folder)
    source = open_checkpoint(NAME).source
    asked = len(hub.requests)
    size = source.list_files()["config.json"]
    for start, length in ((0, size + 1), (size, 1), (-1, 1), (0, -1)):
        with pytest.raises(CheckpointError, match="ends before"):
            source.read_range("config.json", start, length)
    with pytest.raises(CheckpointError, match="has no file"):
        source.read("nothing.json", 100)
    with pytest.raises(CheckpointError, match="more than the 3"):
        source.read("config.json", 3)
    assert source.read_range("config.json", size, 0) == b""
    assert len(hub.requests) == asked


def test_a_folder_does_not_pay_for_the_hub_library(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    program = (
        "import sys; from draftproof.checkpoint.checkpoint import open_checkpoint; "
        f"open_checkpoint({str(tmp_path)!r}); "
        "sys.exit('huggingface_hub' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
