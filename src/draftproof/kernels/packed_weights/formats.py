"""What a packed matrix is; `packing.py` makes one, `unpacking.py` is its definition in plain torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from torch import Tensor

TILE_ROWS = 16
"""Output features of one tile: the rows of the matrix units' left operand."""


class WeightFormat(Enum):
    """How one weight is kept."""

    BF16 = "bf16"
    FP8 = "fp8"
    """e4m3, with a scale per output row, and optionally one per block of 128 x 128."""
    INT8 = "int8"
    """Sign and magnitude in one byte, with a scale per output row and 128 inputs; opt-in, made at load from
    wider weights."""
    NVFP4 = "nvfp4"
    """e2m1 with an e4m3 scale per 16 inputs and a scale per output row."""


CHUNK_COLUMNS = {WeightFormat.BF16: 32, WeightFormat.FP8: 64, WeightFormat.INT8: 64, WeightFormat.NVFP4: 128}
"""Inputs of one block of a tile."""

SCALE_COLUMNS = 128
"""Inputs that share a block scale (FP8, INT8)."""

BLOCK_BYTES = {
    WeightFormat.BF16: 1024,
    WeightFormat.FP8: 1024,
    WeightFormat.INT8: 1024,
    WeightFormat.NVFP4: 1152,
}
"""Bytes of one block: 16 rows of one chunk; NVFP4's block scales lie behind its weights."""


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix [rows, columns] in blocks of 16 rows by one chunk of columns.

    Rows and columns are padded with zeros to whole blocks. BF16, FP8 and INT8 blocks are the plain row-major
    sub-matrix; NVFP4 blocks are described in `nvfp4_blocks.py`. While experts are packed, all tensors have a
    leading dimension for them.

    Attributes:
        format: how a weight is kept.
        rows: real output features.
        columns: real inputs.
        blocks: uint8 [tiles, chunks, BLOCK_BYTES], contiguous, 128-byte aligned.
        row_scale: [tiles * 16] float32, multiplies each output; None for ones.
        block_scale: float32 [ceil(rows / 128), ceil(columns / 128)] for block FP8, [tiles, ceil(columns /
            128), 16 rows] for INT8, else None.
        bias: [tiles * 16] float32 or None.
        behind: a matrix of the same inputs in another format, whose outputs follow this one's: products of
            both can be one launch.
        paired: gate and up of one MLP: tile i holds rows 8 i .. 8 i + 7 of gate, then the same of up, so that
            one tile gives 8 finished activations. `rows` counts both; block FP8 has gate's rows of
            `block_scale` first, ceil(rows / 2 / 128) for each.
    """

    format: WeightFormat
    rows: int
    columns: int
    blocks: Tensor
    row_scale: Tensor | None = None
    block_scale: Tensor | None = None
    bias: Tensor | None = None
    paired: bool = False
    behind: PackedMatrix | None = None

    @property
    def bytes(self) -> int:
        """Bytes that one pass over the matrix reads, and over the one behind it: weights and scales."""
        parts = (self.blocks, self.row_scale, self.block_scale, self.bias)
        own = sum(part.numel() * part.element_size() for part in parts if part is not None)
        return own if self.behind is None else own + self.behind.bytes

    @property
    def outputs(self) -> int:
        """Rows, and those of the matrix behind."""
        return self.rows if self.behind is None else self.rows + self.behind.outputs

    @property
    def apart(self) -> tuple[PackedMatrix, ...]:
        """The matrices in the order of their outputs, nothing behind any of them."""
        if self.behind is None:
            return (self,)
        return (replace(self, behind=None), *self.behind.apart)


@dataclass(frozen=True)
class PackedExperts:
    """One layer's routed experts, each as two packed matrices of equal shape.

    A tile of `gate_up` holds 8 rows of gate and the same 8 rows of up (`intermediate` is padded to a multiple
    of 8): one tile gives 8 finished activations. All experts have one format.

    Attributes:
        format: of both matrices.
        hidden: inputs of gate_up and outputs of down.
        intermediate: real width between them.
        gate_up: uint8 [experts, ceil(intermediate / 8), chunks of hidden, BLOCK_BYTES].
        down: uint8 [experts, ceil(hidden / 16), chunks of intermediate, BLOCK_BYTES].
        gate_up_scale: float32 [experts, tiles * 16] in the order of the rows of the tiles; None for ones.
        down_scale: float32 [experts, tiles * 16]; None for ones.
        gate_up_block_scale: block FP8: float32 [experts, 2 * ceil(intermediate / 128), ceil(hidden / 128)],
            gate's blocks first; else None.
        down_block_scale: block FP8: float32 [experts, ceil(hidden / 128), ceil(intermediate / 128)]; else
            None.
    """

    format: WeightFormat
    hidden: int
    intermediate: int
    gate_up: Tensor
    down: Tensor
    gate_up_scale: Tensor | None = None
    down_scale: Tensor | None = None
    gate_up_block_scale: Tensor | None = None
    down_block_scale: Tensor | None = None

    @property
    def experts(self) -> int:
        """How many."""
        return self.gate_up.shape[0]
