"""What a serving stack gets to see of a checkpoint: its config files and the names and shapes of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from draftproof.architecture.spec import ModelSpec
from draftproof.hardware.weights import WeightTable


@dataclass(frozen=True)
class StoredTensor:
    """One tensor on disk.

    Attributes:
        name: full name.
        shape: as stored.
        dtype: safetensors name: "BF16", "F8_E4M3", "U8".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ServedCheckpoint:
    """The subject of a stack's rules.

    Attributes:
        name: what stands after `--model-path`: a folder or a repository id.
        config: content of config.json.
        hf_quant_config: content of hf_quant_config.json; None when there is none.
        spec: what the config means, for families whose shapes are known; None otherwise.
        head: every tensor of the MTP head, by name, scales included.
        trunk: every other tensor.
        from_files: True when the tensors were read from headers; False when there are no weight files and
            they are what the architecture asks for, or what a fact table lists.
        unindexed: names of weight files that the index does not list.
        revision: branch, tag or commit of a repository, when the user named one; empty otherwise.
    """

    name: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None
    spec: ModelSpec | None
    head: Mapping[str, StoredTensor]
    trunk: Mapping[str, StoredTensor]
    from_files: bool = True
    unindexed: tuple[str, ...] = ()
    revision: str = ""

    @cached_property
    def weights(self) -> WeightTable | None:
        """What the tensors weigh, as `weigh_served` says; once, since trunks have up to 371,444 of them."""
        from draftproof.stacks.served_weights import weigh_served

        return weigh_served(self)

    @property
    def architecture(self) -> str:
        """The config's `architectures[0]`; empty when it is not a list of names."""
        names = self.config.get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""

    @property
    def model_type(self) -> str:
        """The config's `model_type`; empty when it is no string."""
        name = self.config.get("model_type")
        return name if isinstance(name, str) else ""
