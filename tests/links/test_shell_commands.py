"""The commands beside the evidence run, and show what they are said to show."""

import subprocess

import pytest

from draftproof.links.shell_commands import ShellCommands
from tests.support.checkpoints import CheckpointOptions, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("commands") / "it's a name"
    return write_checkpoint(target, CheckpointOptions(shards=2, vision=False)).folder


def shown(command):
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=30)
    return finished.stdout


def test_commands_on_a_folder(folder):
    commands = ShellCommands(str(folder), str(folder), remote=False)
    assert '"mtp_num_hidden_layers": 1' in shown(
        commands.field("config.json", "text_config.mtp_num_hidden_layers")
    )
    index = shown(commands.tensor_names("model.safetensors.index.json", "mtp.fc"))
    assert "model-0000" in index
    header = shown(commands.header("model-00002-of-00002.safetensors", "mtp.fc"))
    assert header.startswith("mtp.fc.weight {'dtype': 'BF16', 'shape': [64, 128]")
    assert "config.json" in shown(commands.files())
    assert "config.json" in shown(commands.files("config.json"))


def test_commands_on_a_repository_read_it_over_https():
    commands = ShellCommands("org/model", "https://huggingface.co/org/model/resolve/main", remote=True)
    assert commands.field("config.json", "quantization_config.ignore") == (
        "curl -sL https://huggingface.co/org/model/resolve/main/config.json | grep -n '\"ignore\"'"
    )
    assert commands.values("mtp.fc.weight") == "draftproof inspect org/model --tensor mtp.fc.weight"
