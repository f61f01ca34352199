"""Bytes become numbers exactly as torch reads them."""

import numpy as np
import pytest
import torch

from draftproof.links.element_values import decode, decode_e2m1
from tools.quantization import decode_nvfp4, encode_nvfp4

TORCH_TYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I64": torch.int64,
}


@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_every_code_of_the_first_65536_reads_as_torch_reads_it(dtype):
    width = torch.empty(0, dtype=TORCH_TYPES[dtype]).element_size()
    if width <= 2:
        data = np.arange(2 ** (8 * width), dtype=f"<u{width}").tobytes()
    else:
        data = np.random.default_rng(0).bytes(width * 4096)
    expected = torch.frombuffer(bytearray(data), dtype=TORCH_TYPES[dtype]).to(torch.float32).numpy()
    np.testing.assert_array_equal(decode(data, dtype), expected)


def test_an_unknown_dtype_is_said_to_be_unknown():
    assert decode(b"\0\0", "F6_E3M2") is None


def test_packed_four_bit_values_are_the_low_nibble_first():
    weight = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    encoded = encode_nvfp4(weight)
    values = decode_e2m1(encoded.packed.numpy().tobytes()).reshape(4, 2, 16)
    scales = decode(encoded.block_scale.view(torch.uint8).numpy().tobytes(), "F8_E4M3").reshape(4, 2, 1)
    whole = (values * scales * encoded.global_scale.item()).reshape(4, 32)
    np.testing.assert_allclose(whole, decode_nvfp4(encoded).numpy(), rtol=1e-6)
