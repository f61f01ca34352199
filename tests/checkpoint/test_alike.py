"""Tensors that differ in the number of an expert alone stand together, others do not."""

from __future__ import annotations

from draftproof.checkpoint.alike import gather_alike
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.header import TensorEntry
from tests.support.checkpoint_options import CheckpointOptions

EXPERT = "model.layers.0.mlp.experts.{e}.up_proj.weight"


def entry(name: str, dtype: str = "BF16", shape: tuple[int, ...] = (4, 8)) -> TensorEntry:
    return TensorEntry(name, dtype, shape, "model.safetensors", 0, 64)


def patterns(*entries: TensorEntry) -> list[tuple[str, int]]:
    return [(kind.pattern, len(kind.members)) for kind in gather_alike(entries)]


def test_experts_of_one_layer_and_matrix_are_alike() -> None:
    experts = [entry(EXPERT.format(e=number)) for number in range(3)]
    other_layer = entry("model.layers.1.mlp.experts.0.up_proj.weight")
    other_matrix = entry("model.layers.0.mlp.experts.0.down_proj.weight")
    assert patterns(*experts, other_layer, other_matrix) == [
        (EXPERT, 3),
        ("model.layers.1.mlp.experts.{e}.up_proj.weight", 1),
        ("model.layers.0.mlp.experts.{e}.down_proj.weight", 1),
    ]


def test_the_members_are_found_by_their_number() -> None:
    (kind,) = gather_alike([entry(EXPERT.format(e=7)), entry(EXPERT.format(e="07"))])
    assert list(kind.members) == ["7", "07"]
    assert kind.first.name == EXPERT.format(e=7)


def test_another_dtype_or_shape_is_another_kind() -> None:
    names = [EXPERT.format(e=number) for number in range(3)]
    odd = [entry(names[0]), entry(names[1], dtype="F32"), entry(names[2], shape=(8, 4))]
    assert patterns(*odd) == [(EXPERT, 1)] * 3


def test_tensors_of_no_single_expert_stand_alone() -> None:
    names = (
        "lm_head.weight",
        "a.experts.gate_up_proj",
        "a.experts.x.weight",
        "a.experts.1.",
        "experts.1.w",
        "",
    )
    assert patterns(*map(entry, names)) == [(name, 1) for name in names]


def test_a_checkpoint_keeps_all_of_its_tensors(checkpoint) -> None:
    opened = open_checkpoint(str(checkpoint(CheckpointOptions(moe=True)).folder))
    inventory = opened.inventory
    gathered = [each for kind in inventory.alike for each in kind.members.values()]
    assert sorted(gathered) == sorted(inventory.tensors.values())
    assert len(inventory.alike) < len(inventory.tensors)
    assert inventory.alike is inventory.alike
