"""What can be wrong with the weight files of a checkpoint, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class FindingKind(Enum):
    """What is wrong; the value is for reports."""

    NO_WEIGHTS = "no weights"
    """There is no weight file at all."""
    OTHER_FORMAT = "other format"
    """Weights are there, but only as .bin, .pt or .gguf."""
    REFUSED_FILE = "refused file"
    """A file that is not opened: a link that leaves the folder or leads nowhere, no regular file."""
    EMPTY_FILE = "empty file"
    """A file of no bytes, or one that holds no tensor."""
    BROKEN_FILE = "broken file"
    """No usable safetensors header."""
    TRUNCATED_FILE = "truncated file"
    """Shorter than its header says; `tensors` are those whose data is cut."""
    TRAILING_BYTES = "trailing bytes"
    """Longer than its header says."""
    BROKEN_INDEX = "broken index"
    """The index cannot be used; the files are taken as if there were none."""
    STALE_INDEX = "stale index"
    """The index names none of the files that are there."""
    MISSING_SHARD = "missing shard"
    """The index, or the numbering of the files, names a file that is not there."""
    RENAMED_SHARD = "renamed shard"
    """A file holds exactly what the index expects in a file that is not there."""
    TENSOR_NOT_IN_SHARD = "tensor not in shard"
    """The index promises tensors in a file that does not hold them."""
    TENSOR_IN_OTHER_SHARD = "tensor in another shard"
    """The index promises tensors in one file, they lie in another that is read too."""
    TENSOR_NOT_IN_INDEX = "tensor not in index"
    """A file that is read holds tensors that the index does not name."""
    DUPLICATE_TENSOR = "duplicate tensor"
    """The same name in two files that are both read."""
    UNINDEXED_FILE = "unindexed file"
    """A weight file that a load would not read."""
    UNINDEXED_MTP_FILE = "unindexed MTP file"
    """A weight file that a load would not read holds an MTP head, by its tensors' names or its own."""
    TOTAL_SIZE_MISMATCH = "total size mismatch"
    """The index's total_size is not the size of all tensors."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: what.
        file: the file it concerns.
        message: one sentence that names the thing, without a full stop.
        tensors: names it concerns, sorted; empty when it concerns the whole file.
    """

    kind: FindingKind
    file: str
    message: str
    tensors: tuple[str, ...] = field(default=(), repr=False)


def shown_names(names: tuple[str, ...], count: int = 3) -> str:
    """A few names and the number of the rest, for messages."""
    rest = len(names) - count
    return ", ".join(names[:count]) + (f" and {rest} more" if rest > 0 else "")
