"""The weights of a checkpoint as a stack gets to see it."""

from __future__ import annotations

from draftproof.checkpoint.config import ConfigFile, ConfigFiles
from draftproof.hardware.weights import WeightTable, weigh_alike, weigh_config
from draftproof.stacks.gathered_tensors import alike_in
from draftproof.stacks.served_checkpoint import ServedCheckpoint


def served_weights(checkpoint: ServedCheckpoint) -> WeightTable | None:
    """What a checkpoint's tensors weigh, as `weigh_served` finds it the first time that it is asked for."""
    return checkpoint.weights


def weigh_served(checkpoint: ServedCheckpoint) -> WeightTable | None:
    """Weighs the tensors of the files, or, without files, what the architecture asks for as declared.

    Returns:
        None when there are neither files nor a known architecture.
    """
    if checkpoint.from_files:
        return weigh_alike((*alike_in(checkpoint.head), *alike_in(checkpoint.trunk)))
    if checkpoint.spec is None:
        return None
    files = ConfigFiles(
        ConfigFile("config.json", checkpoint.config),
        ConfigFile("hf_quant_config.json", checkpoint.hf_quant_config),
        ConfigFile("generation_config.json", None),
    )
    return weigh_config(checkpoint.spec, files)
