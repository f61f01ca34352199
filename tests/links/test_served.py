"""What a serving stack gets to see of a checkpoint: from its files, or from its config alone."""

from __future__ import annotations

import json
from pathlib import Path

from draftproof.architecture.tensor_plan import HEAD_PREFIX
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.links.served import head_names, served_checkpoint
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from tests.support.checkpoint_options import CheckpointOptions
from tests.support.checkpoints import write_checkpoint
from tests.support.public_configs import public_config


def only_config(folder: Path, name: str) -> ServedCheckpoint:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(public_config(name)))
    return served_checkpoint(open_checkpoint(str(folder)))


def test_the_files_tensors_are_split_into_head_and_trunk(tmp_path: Path) -> None:
    written = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(moe=True))
    served = served_checkpoint(open_checkpoint(str(written.folder)))
    names = set(written.tensors)
    assert served.from_files
    assert set(served.head) == {name for name in names if name.startswith(HEAD_PREFIX)}
    assert set(served.trunk) == names - set(served.head)
    assert len(served.trunk) == len(names) - len(served.head)
    assert served.head["mtp.fc.weight"].shape == tuple(written.tensors["mtp.fc.weight"].shape)
    assert served.architecture == "Qwen3_5MoeForConditionalGeneration"
    assert served.spec is not None


def test_every_expert_of_the_head_is_there(tmp_path: Path) -> None:
    """Names are judged by one expert's, and all of its fellows follow."""
    options = CheckpointOptions(moe=True)
    written = write_checkpoint(tmp_path / "checkpoint", options)
    served = served_checkpoint(open_checkpoint(str(written.folder)))
    experts = [name for name in served.head if ".experts." in name]
    assert len(experts) == 3 * options.sizes.experts
    assert list(served.head) == sorted(served.head)
    assert not any(name.startswith(HEAD_PREFIX) for name in served.trunk)


def test_without_weight_files_the_architecture_is_asked(tmp_path: Path) -> None:
    served = only_config(tmp_path / "dense", "Qwen_Qwen3.5-9B")
    assert not served.from_files
    assert len(served.head) == 15
    assert len(served.trunk) == 775 - 15
    assert {tensor.dtype for tensor in served.head.values()} == {"BF16"}


def test_the_declared_precision_is_taken_where_there_is_nothing_else(tmp_path: Path) -> None:
    served = only_config(tmp_path / "fp8", "Qwen_Qwen3.5-122B-A10B-FP8")
    assert len(served.head) == 1560
    assert served.head["mtp.layers.0.self_attn.q_proj.weight"].dtype == "F8_E4M3"
    assert served.head["mtp.fc.weight"].dtype == "BF16"


def test_a_family_that_is_known_by_names_has_no_tensors_without_files(tmp_path: Path) -> None:
    served = only_config(tmp_path / "glm", "zai-org_GLM-5.1")
    assert served.spec is None
    assert not served.head
    assert not served.trunk


def test_a_head_under_a_foreign_prefix_is_still_the_head(tmp_path: Path) -> None:
    written = write_checkpoint(tmp_path / "checkpoint", CheckpointOptions())
    checkpoint = open_checkpoint(str(written.folder))
    renamed = {
        name.replace("mtp.", "model.mtp.", 1) if name.startswith("mtp.") else name: entry
        for name, entry in checkpoint.inventory.tensors.items()
    }
    assert len(head_names(checkpoint.config, renamed)) == 15
