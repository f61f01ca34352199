"""The weights of a checkpoint as a stack gets to see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from draftproof.checkpoint.config import ConfigFile, ConfigFiles
from draftproof.checkpoint.header import BITS_PER_ELEMENT, TensorEntry
from draftproof.hardware.weights import WeightTable, weigh_config, weigh_tensors
from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor


def served_weights(checkpoint: ServedCheckpoint) -> WeightTable | None:
    """What a checkpoint's tensors weigh, as `weigh_served` finds it the first time that it is asked for."""
    return checkpoint.weights


def weigh_served(checkpoint: ServedCheckpoint) -> WeightTable | None:
    """Weighs the tensors of the files, or, without files, what the architecture asks for as declared.

    Returns:
        None when there are neither files nor a known architecture.
    """
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
        size = math.prod(tensor.shape) * BITS_PER_ELEMENT.get(tensor.dtype, 16) // 8
        yield TensorEntry(tensor.name, tensor.dtype, tensor.shape, "", 0, size)
