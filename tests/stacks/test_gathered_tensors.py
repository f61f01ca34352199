"""Tensors that are gathered by kind are the same tensors by name."""

from __future__ import annotations

from draftproof.checkpoint.alike import gather_alike
from draftproof.checkpoint.header import TensorEntry
from draftproof.stacks.gathered_tensors import GatheredTensors, LazyTensors, alike_in, entries_of
from draftproof.stacks.served_checkpoint import StoredTensor

NAMES = tuple(f"layers.0.mlp.experts.{number}.up_proj.weight" for number in range(3))
ENTRIES = tuple(TensorEntry(name, "BF16", (4, 8), "", 0, 64) for name in NAMES)


def test_a_lazy_list_is_made_once_and_when_it_is_looked_at() -> None:
    made = []

    def listing() -> dict[str, StoredTensor]:
        made.append(1)
        return {"a": StoredTensor("a", (1,), "F32")}

    tensors = LazyTensors(listing)
    assert not made
    assert list(tensors) == ["a"]
    assert tensors["a"].shape == (1,)
    assert len(made) == 1


def test_gathered_tensors_are_found_by_name() -> None:
    tensors = GatheredTensors(gather_alike(ENTRIES))
    assert set(tensors) == set(NAMES)
    assert tensors[NAMES[1]] == StoredTensor(NAMES[1], (4, 8), "BF16")


def test_what_was_gathered_is_not_gathered_again() -> None:
    alike = gather_alike(ENTRIES)
    assert alike_in(GatheredTensors(alike)) is alike


def test_a_plain_list_is_gathered_and_weighs_what_its_dtype_says() -> None:
    plain = {name: StoredTensor(name, (4, 8), "BF16") for name in NAMES}
    assert tuple(entries_of(alike_in(plain))) == ENTRIES
