"""model.safetensors.index.json: which tensor is said to lie in which file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.checkpoint.source import Source
from draftproof.errors import CheckpointError

INDEX_FILE = "model.safetensors.index.json"
MAX_INDEX_BYTES = 200_000_000

_LIMITS = JsonLimits(values=6_000_000, depth=4)
_SAFE_NAME = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[^/\\\0][^\\\0]{0,511}")


@dataclass(frozen=True)
class ShardIndex:
    """A well-formed index; whether it tells the truth is the inventory's question.

    Attributes:
        file: its own name.
        weight_map: tensor name -> file name, relative to the index.
        total_size: bytes of all tensors as the index claims; None when it does not say.
    """

    file: str
    weight_map: Mapping[str, str]
    total_size: int | None

    @property
    def shards(self) -> tuple[str, ...]:
        """Every file that the index names, once, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


def read_index(source: Source, file: str = INDEX_FILE) -> ShardIndex:
    """Reads and checks an index.

    Raises:
        CheckpointError: it cannot be read, is no JSON, or is not shaped like an index.
    """
    try:
        content = parse_object(source.read(file, MAX_INDEX_BYTES), _LIMITS)
    except JsonProblem as error:
        raise CheckpointError(f"{file}: {error}") from error
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{file}: weight_map: expected an object with at least one tensor")
    checked: dict[Any, bool] = {}
    for name, shard in weight_map.items():
        if shard.__class__ is not str:
            raise CheckpointError(f"{file}: weight_map: {name!r} is not given a file name")
        if shard not in checked:
            checked[shard] = True
            if not _SAFE_NAME.fullmatch(shard):
                raise CheckpointError(
                    f"{file}: weight_map: {shard[:80]!r} is no file name inside the checkpoint"
                )
    return ShardIndex(file, weight_map, _total_size(file, content.get("metadata")))


def _total_size(file: str, metadata: Any) -> int | None:
    if not isinstance(metadata, dict) or "total_size" not in metadata:
        return None
    value = metadata["total_size"]
    if isinstance(value, float) and value.is_integer():
        # Some exporters divide and write 1.93e10.
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**63:
        raise CheckpointError(
            f"{file}: metadata.total_size: expected a number of bytes, found {str(value)[:40]}"
        )
    return value
