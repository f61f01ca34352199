"""Sizes of a served checkpoint's weights by what they do, from its tensors or from its config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from draftproof.checkpoint.config import ConfigFile, ConfigFiles
from draftproof.checkpoint.header import BITS_PER_ELEMENT, TensorEntry
from draftproof.hardware.weights import WeightTable, weigh_config, weigh_tensors
from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor


def served_weights(checkpoint: ServedCheckpoint) -> WeightTable | None:
    """The weights; None when there are neither files nor a family whose shapes are known."""
    if checkpoint.from_files:
        return weigh_tensors(_entries((*checkpoint.head.values(), *checkpoint.trunk.values())))
    if checkpoint.spec is None:
        return None
    files = ConfigFiles(
        ConfigFile("config.json", checkpoint.config),
        ConfigFile("hf_quant_config.json", checkpoint.hf_quant_config),
        ConfigFile("generation_config.json", None),
    )
    return weigh_config(checkpoint.spec, files)


def _entries(tensors: Iterable[StoredTensor]) -> Iterator[TensorEntry]:
    for tensor in tensors:
        elements = 1
        for size in tensor.shape:
            elements *= size
        size = elements * BITS_PER_ELEMENT.get(tensor.dtype, 16) // 8
        yield TensorEntry(tensor.name, tensor.dtype, tensor.shape, "", 0, size)
