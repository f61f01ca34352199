"""The releases have the heads that are known of them."""

from __future__ import annotations

import pytest

from tests.support.served_checkpoints import release_names, served_release


@pytest.mark.parametrize(
    ("name", "count", "dtypes"),
    [
        ("nvidia_Qwen3.5-397B-A17B-NVFP4", 1553, {"BF16"}),
        ("nvidia_Qwen3.5-122B-A10B-NVFP4", 785, {"BF16"}),
        ("Qwen_Qwen3.5-122B-A10B-FP8", 1560, {"BF16", "F8_E4M3", "F32"}),
        ("Qwen_Qwen3.6-35B-A3B", 19, {"BF16"}),
        ("Qwen_Qwen3.8-2.4T-A95B-FP8", 3089, {"BF16", "F8_E4M3", "F32"}),
        ("Qwen_Qwen3-Next-80B-A3B-Instruct", 1553, {"BF16"}),
        ("RedHatAI_Qwen3.5-9B-quantized.w4a16", 15, {"BF16"}),
        ("nvidia_Qwen3.6-27B-NVFP4", 15, {"BF16"}),
        ("gittensor_Qwen3.8-27B-NVFP4-RTX5090", 0, set()),
    ],
)
def test_heads_have_the_published_counts_and_precision(name: str, count: int, dtypes: set[str]) -> None:
    head = served_release(name).head
    assert len(head) == count
    assert {tensor.dtype for tensor in head.values()} == dtypes


def test_there_is_every_release() -> None:
    assert len(release_names()) == 37
