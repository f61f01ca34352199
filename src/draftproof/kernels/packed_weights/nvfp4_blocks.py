"""The bits of an NVFP4 block: 16 rows of 128 inputs in 1152 bytes.

Bytes 0 .. 1023 are the weights: [2 halves of 8 rows][row g of the half][t = 0 .. 3][4 words], little-endian
32-bit words. Word w of (g, t) holds the inputs 16 j + 4 t .. 4 t + 3 of row g for the groups j = 2 w and
2 w + 1: 8 weights as four pairs, pair r = 2 (j % 2) + (input / 2) % 2.

A kernel makes of a pair two BF16 numbers, 2^-126 times the weights, side by side in 32 bits: it rotates the
word to the left and keeps the bits 15 and 8 .. 6 of both halves (sign; lowest bits of the exponent, highest
of the mantissa). The rotations are 0, 4 and 10 for the pairs 0, 1 and 2. Three such fields leave the bits
0, 1, 9 and 10 of each half free, too scattered for a fourth; but those of an even word together with those
of its odd neighbour, rotated by 2, make two fields: the *merged word* `(even & LEFT) | (rotate(odd, 2) &
~LEFT)` gives pair 3 of the even word by rotation 6 and of the odd one by 12. That is 16 instructions for 16
weights.

Bytes 1024 .. 1151 are the scales: [2 halves][row g][even groups, then odd groups]. A byte holds the
exponent's 5 low bits and 3 mantissa bits of 2^-9 times the block scale as a float32: `byte << 20 |
0x30000000` are that number's bits. A block scale of zero has no such form, so its weights are zeroed
instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.dequantize.reference import E2M1_VALUES
from draftproof.kernels.packed_weights.formats import TILE_ROWS

CHUNK = 128
GROUP = 16
WEIGHT_BYTES = 1024
SCALE_BIAS = 96 << 3
SCALE_FACTOR = 2.0**9
ROTATIONS = (0, 4, 10)
"""Of the pairs 0, 1 and 2 of a word."""
MERGED_ROTATIONS = (6, 12)
"""In the merged word, of pair 3 of the even and of the odd word."""
MERGE_ROTATION = 2
LEFT = 0x06030603
"""Bits that the pairs 0, 1 and 2 leave free."""
VALUE_BITS = (15, 8, 7, 6)
"""Where sign and magnitude of an e2m1 number stand in a BF16 number, from the highest."""
WORD = (1 << 32) - 1


def encode_blocks(packed: Tensor, block_scale: Tensor) -> Tensor:
    """Blocks of whole tiles and chunks.

    Args:
        packed: uint8 [tiles * 16, chunks * 64], two weights a byte, low nibble first.
        block_scale: float8_e4m3fn [tiles * 16, chunks * 8], not negative.

    Returns:
        uint8 [tiles, chunks, 1152].
    """
    tiles, chunks = packed.shape[0] // TILE_ROWS, packed.shape[1] // (CHUNK // 2)
    table = _contributions(packed.device)
    is_zero = (block_scale.view(torch.uint8) & 0x7F) == 0
    # row, chunk, couple of words, word of the couple, group of the word, t, pair of the group
    pairs = packed.view(-1, chunks, 2, 2, 2, 4, 2)
    pairs = pairs.masked_fill(is_zero.view(-1, chunks, 2, 2, 2, 1, 1), 0)
    couples = torch.zeros(*pairs.shape[:3], 4, dtype=torch.int64, device=packed.device)
    for word in (0, 1):
        for pair in range(4):
            # A couple is one 64-bit number, the even word in its low half.
            couples |= table[word, pair][pairs[:, :, :, word, pair // 2, :, pair % 2].int()]
    weights = couples.view(tiles, 2, 8, chunks, 2, 4).permute(0, 3, 1, 2, 5, 4).contiguous().view(torch.uint8)
    scales = encode_scales(block_scale).view(tiles, TILE_ROWS, chunks, 4, 2).permute(0, 2, 1, 4, 3)
    return torch.cat((weights.view(tiles, chunks, -1), scales.reshape(tiles, chunks, -1)), 2)


def encode_scales(block_scale: Tensor) -> Tensor:
    """Scale bytes, uint8, of e4m3 scales."""
    values = block_scale.float()
    codes = ((values * (1 / SCALE_FACTOR)).view(torch.int32) >> 20) - SCALE_BIAS
    return codes.masked_fill(values == 0, 0).to(torch.uint8)


def decode_blocks(blocks: Tensor) -> Tensor:
    """The weights with their block scales.

    Args:
        blocks: uint8 [tiles, chunks, 1152].

    Returns:
        float32 [tiles * 16, chunks * 128].
    """
    tiles, chunks = blocks.shape[:2]
    words = blocks[..., :WEIGHT_BYTES].contiguous().view(torch.int32).view(tiles, chunks, 2, 8, 4, 2, 2)
    words = words.long() & WORD
    even, odd = words.unbind(-1)
    merged = (even & LEFT) | (_rotated(odd, MERGE_ROTATION) & (WORD ^ LEFT))
    pairs = [
        torch.stack([_pair_of_codes(word, rotation) for rotation in ROTATIONS] + [last], -2)
        for word, last in zip(
            (even, odd), (_pair_of_codes(merged, rotation) for rotation in MERGED_ROTATIONS), strict=True
        )
    ]
    codes = torch.stack(pairs, -3)  # tile, chunk, half, row, t, couple, word, pair, first or second
    values = torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES), device=blocks.device)[codes]
    values = values.view(tiles, chunks, 2, 8, 4, 4, 2, 2, 2).permute(0, 2, 3, 1, 5, 6, 4, 7, 8)
    scale_bits = (blocks[..., WEIGHT_BYTES:].int() << 20) | (SCALE_BIAS << 20)
    scales = scale_bits.view(torch.float32).view(tiles, chunks, 2, 8, 2, 4).permute(0, 2, 3, 1, 5, 4)
    weights = values.reshape(tiles, 2, 8, chunks, 8, GROUP)
    weights = weights * (scales.reshape(tiles, 2, 8, chunks, 8, 1) * SCALE_FACTOR)
    return weights.reshape(tiles * TILE_ROWS, chunks * CHUNK)


def _rotated(words: Tensor, left: int) -> Tensor:
    """int64 that hold 32-bit words, rotated to the left."""
    return ((words << left) | (words >> (32 - left))) & WORD


def _pair_of_codes(words: Tensor, rotation: int) -> Tensor:
    """[..., 2] int64: the 4-bit codes whose bits a rotation brings to `VALUE_BITS` of the two halves."""
    rotated = _rotated(words, rotation) if rotation else words
    halves = torch.stack((rotated & 0xFFFF, rotated >> 16), -1)
    return (((halves >> VALUE_BITS[0]) & 1) << 3) | ((halves >> VALUE_BITS[-1]) & 7)


def _contributions(device: torch.device) -> Tensor:
    """[2 words, 4 pairs, 256] int64: what a byte of two weights contributes to its couple of words."""
    byte = torch.arange(256, dtype=torch.int64)
    field = torch.zeros_like(byte)
    for code, half in ((byte & 0xF, 0), (byte >> 4, 16)):
        field |= (((code >> 3) << VALUE_BITS[0]) | ((code & 7) << VALUE_BITS[-1])) << half
    rows = []
    for word in (0, 1):
        shift = 32 * word
        places = [_rotated(field, 32 - rotation) << shift for rotation in ROTATIONS]
        merged = _rotated(field, 32 - MERGED_ROTATIONS[word])
        from_odd = _rotated(merged & (WORD ^ LEFT), 32 - MERGE_ROTATION)
        rows.append(torch.stack([*places, (merged & LEFT) | (from_odd << 32)]))
    return torch.stack(rows).to(device)
