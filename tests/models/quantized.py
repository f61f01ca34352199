"""Quantised layouts of public releases, and the logits that a loaded model gives from them."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.models.loading import LoadedModel
from draftproof.runtime.state_store import WindowKind
from tests.support.checkpoints import (
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    FP8_CHANNEL,
    FP8_TENSOR,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    NVFP4_ROUTED_SHARED,
    CheckpointOptions,
    Family,
)
from tests.support.engines import Settings, make_store, random_prompt

QUANTIZED = {
    "fp8 block": CheckpointOptions(precision=FP8_BLOCK),
    "fp8 block, moe": CheckpointOptions(moe=True, precision=FP8_BLOCK, scale_inv_dtype="float32", shards=2),
    "fp8 block of 128": CheckpointOptions(moe=True, precision=FP8_BLOCK.with_block(128, 128)),
    "fp8 block, qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP8_BLOCK),
    "fp8 experts": CheckpointOptions(moe=True, precision=FP8_BLOCK_EXPERTS),
    "fp8 tensor": CheckpointOptions(precision=FP8_TENSOR, kv_scales=True),
    "fp8 tensor, qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP8_TENSOR),
    "fp8 channel": CheckpointOptions(moe=True, precision=FP8_CHANNEL),
    "nvfp4 routed": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3),
    "nvfp4 routed, own scales": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shared_scales=False),
    "nvfp4 routed, nvfp4 head": CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4),
    "nvfp4 routed, fp8 head": CheckpointOptions(
        moe=True, precision=NVFP4_ROUTED, mtp_precision=FP8_BLOCK_EXPERTS
    ),
    "nvfp4 routed and shared": CheckpointOptions(moe=True, precision=NVFP4_ROUTED_SHARED),
    "nvfp4 mixed": CheckpointOptions(moe=True, precision=NVFP4_MIXED, kv_scales=True),
    "nvfp4 mixed, dense": CheckpointOptions(precision=NVFP4_MIXED),
    "nvfp4 compressed": CheckpointOptions(
        moe=True, precision=NVFP4_COMPRESSED, mtp_precision=MTP_NVFP4_COMPRESSED
    ),
    "nvfp4 compressed, dense": CheckpointOptions(precision=NVFP4_COMPRESSED),
}
PROMPT = random_prompt(40, 2)


@torch.inference_mode()
def logits_of(model: LoadedModel) -> tuple[Tensor, Tensor]:
    """Logits of target and head over the prompt, [rows, vocab] each."""
    assert model.head is not None
    store = make_store(model, Settings(slots=1, max_length=len(PROMPT)))
    store.open_slot(0, [2, 1, 3])
    rows = torch.tensor([PROMPT[:-1]])
    window = store.begin([0], [rows.shape[1]], WindowKind.EXTEND)
    hidden = model.target.forward(rows, window.window)
    window.commit([rows.shape[1]])
    attention = store.attention_rows([0], [0], [rows.shape[1]])
    drafted = model.head.forward(torch.tensor([PROMPT[1:]]), hidden, attention, store.head_caches)
    return model.target.logits(hidden)[0], model.head.logits(drafted)[0]
