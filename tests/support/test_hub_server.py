"""The stand-in hub answers huggingface_hub as the real one does, and counts what it sends."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

NAME = "someone/model"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3_5"}')
    (folder / "sub" / "note.txt").write_text("hello")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 16)
    return folder


def read_range(hub, asked):
    """(status, headers, body) of the weight file, redirects followed, by a plain client."""
    url = f"{hub.url}/{NAME}/resolve/main/model.safetensors"
    with urlopen(Request(url, headers={"Range": asked})) as response:
        return response.status, response.headers, response.read()


def test_model_info_lists_files_with_sizes_when_asked(hub, folder):
    repository = hub.add(NAME, folder)
    info = HfApi().model_info(NAME, files_metadata=True)
    assert info.sha == repository.commit
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings}
    assert sizes == {"config.json": 25, "sub/note.txt": 5, "model.safetensors": 4096}
    assert next(s for s in info.siblings if s.rfilename == "model.safetensors").lfs.size == 4096
    assert all(sibling.size is None for sibling in HfApi().model_info(NAME).siblings)


def test_tree_lists_one_level_or_all(hub, folder):
    hub.add(NAME, folder)
    assert {entry.path for entry in HfApi().list_repo_tree(NAME)} == {
        "config.json",
        "model.safetensors",
        "sub",
    }
    assert {entry.path for entry in HfApi().list_repo_tree(NAME, recursive=True)} == {
        "config.json",
        "model.safetensors",
        "sub",
        "sub/note.txt",
    }
    assert [entry.path for entry in HfApi().list_repo_tree(NAME, "sub")] == ["sub/note.txt"]
    assert [entry.size for entry in HfApi().get_paths_info(NAME, ["sub/note.txt", "absent"])] == [5]


@pytest.mark.parametrize("revision", ["main", "release", "commit"])
def test_revisions_are_branches_and_the_commit(hub, folder, revision):
    repository = hub.add(NAME, folder, branches=("main", "release"))
    asked = repository.commit if revision == "commit" else revision
    assert HfApi().model_info(NAME, revision=asked).sha == repository.commit
    path = hf_hub_download(NAME, "config.json", revision=asked)
    assert Path(path).parent.name == repository.commit


def test_downloads_are_whole_and_cached(hub, folder):
    hub.add(NAME, folder)
    downloaded = Path(snapshot_download(NAME))
    for path in ("config.json", "sub/note.txt", "model.safetensors"):
        assert (downloaded / path).read_bytes() == (folder / path).read_bytes()
    before = hub.bytes_served
    assert snapshot_download(NAME, local_files_only=True) == str(downloaded)
    assert hub.bytes_served == before


def test_file_metadata_comes_before_the_redirect(hub, folder):
    repository = hub.add(NAME, folder)
    url = f"{hub.url}/{NAME}/resolve/main/model.safetensors"
    metadata = HfApi().get_hf_file_metadata(url=url)
    assert (metadata.size, metadata.commit_hash) == (4096, repository.commit)
    assert metadata.etag == repository.files["model.safetensors"].etag
    assert metadata.location.startswith(f"{hub.url}/cdn/")
    assert hub.bytes_served == 0


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("bytes=0-7", slice(0, 8)), ("bytes=4090-", slice(4090, None)), ("bytes=-3", slice(-3, None))],
)
def test_ranges_send_only_what_was_asked(hub, folder, asked, expected):
    hub.add(NAME, folder)
    content = (folder / "model.safetensors").read_bytes()
    status, headers, body = read_range(hub, asked)
    assert status == HTTPStatus.PARTIAL_CONTENT
    assert body == content[expected]
    assert headers["Content-Range"].endswith("/4096")
    assert hub.bytes_served == len(content[expected])


def test_range_outside_the_file_and_a_server_that_ignores_ranges(hub, folder):
    hub.add(NAME, folder)
    with pytest.raises(HTTPError, match="416") as caught:
        read_range(hub, "bytes=5000-")
    caught.value.close()
    hub.honours_ranges = False
    status, _, body = read_range(hub, "bytes=0-7")
    assert (status, len(body)) == (HTTPStatus.OK, 4096)


def test_sparse_files_larger_than_memory_are_served_by_range(hub, tmp_path):
    folder = tmp_path / "sparse"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(b"head")
        os.truncate(file.fileno(), 1 << 40)
    hub.add(NAME, folder)
    assert HfApi().model_info(NAME, files_metadata=True).siblings[0].size == 1 << 40
    before = hub.bytes_served
    assert read_range(hub, "bytes=2-9")[2] == b"ad\0\0\0\0\0\0"
    assert hub.bytes_served - before == 8


def test_what_is_missing_has_the_hubs_own_error(hub, folder):
    hub.add(NAME, folder)
    with pytest.raises(RepositoryNotFoundError):
        HfApi().model_info("someone/absent")
    with pytest.raises(RevisionNotFoundError):
        HfApi().model_info(NAME, revision="absent")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(NAME, "absent.json")


def test_private_repositories_look_missing_without_the_token(hub, folder):
    hub.add(NAME, folder, token="hf_secret")
    with pytest.raises(RepositoryNotFoundError):
        HfApi().model_info(NAME)
    assert HfApi(token="hf_secret").model_info(NAME).private is True


def test_gated_repositories_list_but_do_not_give_files(hub, folder):
    hub.add(NAME, folder, gated=True, allowed=("hf_allowed",))
    assert HfApi().model_info(NAME).gated == "manual"
    for token, status in ((False, 401), ("hf_other", 403)):
        with pytest.raises(GatedRepoError) as caught:
            hf_hub_download(NAME, "config.json", token=token)
        assert caught.value.response.status_code == status
    assert Path(hf_hub_download(NAME, "model.safetensors", token="hf_allowed")).stat().st_size == 4096


def test_planned_failures_come_first_and_end(hub, folder):
    hub.add(NAME, folder)
    hub.fail_next(500)
    with pytest.raises(HfHubHTTPError):
        HfApi().model_info(NAME)
    assert HfApi().model_info(NAME).id == NAME
    assert [request.status for request in hub.requests] == [500, 200]
