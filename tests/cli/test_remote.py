"""Repositories on the hub: the same evidence as from a folder, from less than a hundredth of the bytes."""

import json

import pytest

from draftproof.cli.main import run
from tests.support.checkpoints import NVFP4_ROUTED, CheckpointOptions, write_checkpoint
from tests.support.faults import copy_of, fill_tensor, protect, strip_mtp


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3)
    return protect(write_checkpoint(tmp_path_factory.mktemp("remote") / "nvfp4", options).folder)


def verdicts(report):
    return {item["check"]: item["verdict"] for link in report["links"] for item in link["items"]}


def test_a_repository_gets_the_verdicts_of_the_folder(hub, sound, capsys):
    hub.add("some/model", sound)
    assert run(["verify", "some/model", "--json"]) == 0
    remote = json.loads(capsys.readouterr().out)
    assert run(["verify", str(sound), "--json"]) == 0
    assert verdicts(remote) == verdicts(json.loads(capsys.readouterr().out))
    assert len(remote["subject"]["revision"]) == 40
    assert remote["subject"]["location"].startswith(hub.url)


def test_faults_are_found_remotely(hub, sound, tmp_path, capsys):
    folder = copy_of(sound, tmp_path / "stripped")
    strip_mtp(folder)
    hub.add("some/stripped", folder)
    assert run(["verify", "some/stripped"]) == 1
    assert "0 of 41 tensors" in capsys.readouterr().out


def test_a_dead_projection_is_found_remotely(hub, sound, tmp_path, capsys):
    folder = copy_of(sound, tmp_path / "dead")
    fill_tensor(folder, "mtp.fc.weight", 0.0)
    hub.add("some/dead", folder)
    assert run(["verify", "some/dead", "--json"]) == 1
    assert verdicts(json.loads(capsys.readouterr().out))["values-alive"] == "disproved"


def test_inspect_reads_a_repository(hub, sound, capsys):
    hub.add("some/model", sound)
    assert run(["inspect", "some/model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["head"]["present"] == 41


def test_a_repository_that_is_not_there_is_one_line(hub, capsys):
    code = run(["verify", "some/thing"])
    error = capsys.readouterr().err
    assert code in (2, 4)
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_less_than_a_hundredth_of_a_large_repository_is_fetched(hub, tmp_path, capsys, command):
    from tools.make_sparse_checkpoint import PRECISIONS, flagship_config, make

    config = flagship_config()
    text = config["text_config"]
    text["num_hidden_layers"], text["layer_types"], text["num_experts"] = 4, text["layer_types"][:4], 64
    config["vision_config"]["depth"] = 2
    folder = tmp_path / "large"
    written = make(folder, config, PRECISIONS["nvfp4-routed"], shard_bytes=2_000_000_000)
    hub.add("some/large", folder)
    assert run([command, "some/large"]) == (1 if command == "verify" else 0)
    assert written.size > 5_000_000_000
    assert hub.bytes_served < written.size / 100
