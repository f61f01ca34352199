"""The bits of an NVFP4 block: 16 rows of 128 inputs in 1152 bytes.

Bytes 0 .. 1023 are the weights: [2 halves of 8 rows][row g of the half][t = 0 .. 3][4 words] little-endian 32-bit
words. Word q of (g, t) holds the inputs 16 j + 4 t .. 4 t + 3 of row g for the groups j = 2 q and 2 q + 1: 8
weights as four pairs, pair r = 2 (j % 2) + (input / 2) % 2. The first weight of a pair lies in the low half word,
the second in the high one, at the same bits: a kernel makes two BF16 numbers, 2^-126 times the weights, of pair r
by one shift and one mask (sign at bit 15, magnitude at bits 8 .. 6):

    pair 0   sign at bit 15, magnitude at 8 .. 6      no shift
    pair 1   sign at bit 12, magnitude at 5 .. 3      left by 3
    pair 2   sign at bit 9, magnitude at 2 .. 0       left by 6
    pair 3   sign at bit 13, magnitude at 11, 10, 14  what the others leave, so that left by 2, right by 3 and right
                                                      by 8 can be added up by one multiplication of the masked word

Bytes 1024 .. 1151 are the scales: [2 halves][row g][group of 16 inputs]. A byte holds the exponent's 5 low bits and
3 mantissa bits of 2^-9 times the block scale as a float32: `byte << 20 | 0x30000000` are that number's bits. A
block scale of zero has no such form, so its weights are zeroed instead.
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


def encode_blocks(packed: Tensor, block_scale: Tensor) -> Tensor:
    """Blocks of whole tiles and chunks.

    Args:
        packed: uint8 [tiles * 16, chunks * 64], two weights a byte, low nibble first.
        block_scale: float8_e4m3fn [tiles * 16, chunks * 8], not negative.

    Returns:
        uint8 [tiles, chunks, 1152].
    """
    tiles, chunks = packed.shape[0] // TILE_ROWS, packed.shape[1] // (CHUNK // 2)
    tables = _pair_tables(packed.device)
    # tile, half, row, chunk, word, group parity, t, pair of the group
    pairs = packed.view(tiles, 2, 8, chunks, 4, 2, 4, 2)
    is_zero = (block_scale.view(torch.uint8) & 0x7F) == 0
    pairs = pairs.masked_fill(is_zero.view(tiles, 2, 8, chunks, 4, 2, 1, 1), 0)
    words = sum(
        tables[2 * parity + pair][pairs[..., parity, :, pair].int()] for parity in (0, 1) for pair in (0, 1)
    )
    assert isinstance(words, Tensor)
    weights = words.permute(0, 3, 1, 2, 5, 4).contiguous().view(torch.uint8)
    scales = encode_scales(block_scale).view(tiles, TILE_ROWS, chunks, CHUNK // GROUP).transpose(1, 2)
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
    words = blocks[..., :WEIGHT_BYTES].contiguous().view(torch.int32).view(tiles, chunks, 2, 8, 4, 4)
    halves = torch.stack((words & 0xFFFF, (words >> 16) & 0xFFFF), -1)
    codes = torch.stack([_code(halves, pair) for pair in range(4)], -2)
    values = torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES), device=blocks.device)[codes]
    # tile, chunk, half, row, t, word, group parity, pair, first or second -> tile, row, chunk, group, input
    values = values.view(tiles, chunks, 2, 8, 4, 4, 2, 2, 2).permute(0, 2, 3, 1, 5, 6, 4, 7, 8)
    scale_bits = (blocks[..., WEIGHT_BYTES:].int() << 20) | (SCALE_BIAS << 20)
    scales = scale_bits.view(torch.float32).view(tiles, chunks, 2, 8, 8).permute(0, 2, 3, 1, 4)
    weights = values.reshape(tiles, 2, 8, chunks, 8, GROUP) * (scales * SCALE_FACTOR).unsqueeze(-1)
    return weights.reshape(tiles * TILE_ROWS, chunks * CHUNK)


def _code(half_words: Tensor, pair: int) -> Tensor:
    """4-bit codes of one pair's weights, given as int32 half words."""
    if pair == 3:
        sign, high, low = half_words >> 13, half_words >> 10, half_words >> 14
        return ((sign & 1) << 3) | ((high & 3) << 1) | (low & 1)
    return (((half_words >> (15 - 3 * pair)) & 1) << 3) | ((half_words >> (6 - 3 * pair)) & 7)


def _pair_tables(device: torch.device) -> Tensor:
    """[4 pairs, 256] int32: what a byte of two weights contributes to the word of its pair."""
    codes = torch.arange(16, dtype=torch.int64)
    sign, magnitude = codes >> 3, codes & 7
    fields = [(sign << (15 - 3 * pair)) | (magnitude << (6 - 3 * pair)) for pair in range(3)]
    fields.append((sign << 13) | ((magnitude >> 1) << 10) | ((magnitude & 1) << 14))
    field = torch.stack(fields)
    bytes_ = torch.arange(256)
    words = field[:, bytes_ & 0xF] | (field[:, bytes_ >> 4] << 16)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).to(device)
