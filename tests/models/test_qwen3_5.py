"""The target computes what transformers computes, from every layout of a checkpoint and in any chunking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from draftproof.engine.request import Request
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import DenseBackend
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.state_store import WindowKind
from tests.models.reference import assert_same_logits, greedy_text, reference_logits, reference_model
from tests.support.checkpoints import (
    BF16,
    FP32,
    CheckpointOptions,
    ExpertLayout,
    Family,
    Sizes,
    WrittenCheckpoint,
)
from tests.support.engines import Settings, load, make_engine, make_store, nextn, plain, random_prompt
from tests.support.faults import copy_of, set_config

LAYOUTS = {
    "dense": CheckpointOptions(precision=FP32),
    "dense, tied": CheckpointOptions(precision=FP32, tied=True),
    "dense, bf16 on disk": CheckpointOptions(precision=BF16, shards=2),
    "dense, flat": CheckpointOptions(Family.QWEN3_5_TEXT, precision=FP32),
    "dense, no vision": CheckpointOptions(precision=FP32, vision=False, mtp=False),
    "moe, fused": CheckpointOptions(moe=True, precision=FP32),
    "moe, per expert": CheckpointOptions(
        moe=True, precision=FP32, trunk_experts=ExpertLayout.PER_EXPERT, shards=3
    ),
    "moe, bf16 on disk": CheckpointOptions(moe=True, precision=BF16, recurrent_float32=False, shards=3),
    "moe, flat": CheckpointOptions(Family.QWEN3_5_TEXT, moe=True, precision=FP32),
    "qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP32),
    "qwen3-next, bf16 on disk": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=BF16, shards=2),
    "other sizes": CheckpointOptions(
        moe=True,
        precision=FP32,
        sizes=Sizes(
            hidden=48,
            layers=5,
            full_attention_interval=2,
            heads=8,
            key_value_heads=4,
            head_dim=24,
            partial_rotary_factor=0.25,
            experts=5,
            experts_per_token=3,
            expert_intermediate=40,
            shared_intermediate=40,
            linear_key_heads=3,
            linear_value_heads=3,
            linear_key_head_dim=8,
            linear_value_head_dim=24,
            conv_kernel=3,
        ),
    ),
}
LENGTH = 150

Models = Callable[[str], tuple[LoadedModel, nn.Module]]


@pytest.fixture(scope="module")
def models(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> Models:
    """Ours and transformers', loaded from one folder."""

    @cache
    def get(layout: str) -> tuple[LoadedModel, nn.Module]:
        folder = checkpoint(LAYOUTS[layout]).folder
        return load(folder, with_head=False), reference_model(folder)

    return get


@torch.inference_mode()
def logits_in_chunks(model: LoadedModel, tokens: Sequence[int], chunks: Sequence[int]) -> Tensor:
    """[tokens, vocab] with the prompt fed in chunks of these sizes, the last one repeated."""
    store = make_store(model, Settings(slots=2, max_length=len(tokens)))
    store.open_slot(1, range(3, 3 + -(-len(tokens) // store.sizes.page_size)))
    found, begin, sizes = [], 0, iter(chunks)
    size = next(sizes)
    while begin < len(tokens):
        rows = torch.tensor([tokens[begin : begin + size]])
        window = store.begin([1], [rows.shape[1]], WindowKind.EXTEND)
        found.append(model.target.logits(model.target.forward(rows, window.window)))
        window.commit([rows.shape[1]])
        begin += size
        size = next(sizes, size)
    return torch.cat(found, 1)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_equal_transformers(models: Models, layout: str) -> None:
    ours, theirs = models(layout)
    tokens = random_prompt(LENGTH, 3)
    expected = reference_logits(theirs, torch.tensor([tokens]))[0]
    assert expected.std() > 0.5
    assert_same_logits(logits_in_chunks(ours, tokens, [LENGTH]), expected)


@pytest.mark.parametrize("layout", ["dense", "dense, tied", "moe, fused", "moe, per expert", "qwen3-next"])
def test_two_hundred_greedy_tokens_equal_transformers(models: Models, layout: str) -> None:
    ours, theirs = models(layout)
    prompt = random_prompt(23, 5)
    expected = greedy_text(theirs, prompt, 200)
    assert len(set(expected)) > 60
    request = Request("r", prompt, SamplingParameters(max_tokens=200, ignore_eos=True))
    engine = make_engine(ours, plain, Settings(slots=1, max_length=256, prompt_chunk=8))
    assert engine.run([request])[0].token_ids == expected


def test_greedy_tokens_with_speculation_equal_transformers(
    models: Models, checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]
) -> None:
    _, theirs = models("moe, fused")
    ours = load(checkpoint(LAYOUTS["moe, fused"]).folder)
    prompt = random_prompt(23, 5)
    request = Request("r", prompt, SamplingParameters(max_tokens=120, ignore_eos=True))
    engine = make_engine(ours, nextn, Settings(slots=1, max_length=256, draft_tokens=3))
    assert engine.run([request])[0].token_ids == greedy_text(theirs, prompt, 120)


@pytest.mark.parametrize("layout", ["dense", "moe, fused"])
@pytest.mark.parametrize("chunks", [[1], [3], [16], [64], [63, 2, 64], [149], [1, 7, 64, 3, 75]])
def test_any_chunking_equals_one_pass(models: Models, layout: str, chunks: list[int]) -> None:
    ours, _ = models(layout)
    tokens = random_prompt(LENGTH, 4)
    whole = logits_in_chunks(ours, tokens, [LENGTH])
    assert_same_logits(logits_in_chunks(ours, tokens, chunks), whole)


@pytest.mark.parametrize("layout", ["dense, bf16 on disk", "moe, bf16 on disk", "qwen3-next, bf16 on disk"])
def test_half_precision_storage_loses_nothing(
    models: Models, checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint], layout: str
) -> None:
    """BF16 weights fit half precision exactly: another backend, the same numbers."""
    fbgemm = pytest.importorskip("draftproof.kernels.half_linear.fbgemm")
    if not fbgemm.is_available():
        pytest.skip("this build of torch has no FBGEMM")
    _, theirs = models(layout)
    ours = load(checkpoint(LAYOUTS[layout]).folder, backend=DenseBackend.FBGEMM_HALF)
    tokens = random_prompt(LENGTH, 3)
    expected = reference_logits(theirs, torch.tensor([tokens]))[0]
    assert_same_logits(logits_in_chunks(ours, tokens, [5]), expected)


def test_a_batch_of_different_lengths_equals_transformers_row_by_row(models: Models) -> None:
    """Three sequences in windows that commit some of their rows: lazy replay inside the whole model."""
    ours, theirs = models("moe, fused")
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 290, (3, 60), generator=generator)
    expected = reference_logits(theirs, tokens)
    store = make_store(ours, Settings(slots=3, draft_tokens=4, max_length=80))
    per_slot = (store.sizes.pages - 1) // 3
    for slot in range(3):
        store.open_slot(slot, range(1 + slot * per_slot, 1 + (slot + 1) * per_slot))
    done = [0, 0, 0]
    found: list[list[Tensor]] = [[], [], []]
    order = [2, 0, 1]
    while max(done) < 50:
        counts = [int(torch.randint(1, 6, (1,), generator=generator)) for _ in order]
        kept = [int(torch.randint(1, count + 1, (1,), generator=generator)) for count in counts]
        rows = torch.randint(0, 290, (3, max(counts)), generator=generator)
        for index, slot in enumerate(order):
            rows[index, : kept[index]] = tokens[slot, done[slot] : done[slot] + kept[index]]
        with torch.inference_mode():
            window = store.begin(order, counts, WindowKind.VERIFY)
            logits = ours.target.logits(ours.target.forward(rows, window.window))
            window.commit(kept)
        for index, slot in enumerate(order):
            found[slot].append(logits[index, : kept[index]])
            done[slot] += kept[index]
    for slot in range(3):
        assert_same_logits(torch.cat(found[slot]), expected[slot, : done[slot]])


def test_scaled_rotary_positions_past_the_native_length(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint], tmp_path: Path
) -> None:
    """YaRN by 4 over a native length of 64, as a user who extends the context writes it into the config."""
    folder = copy_of(checkpoint(LAYOUTS["dense"]).folder, tmp_path / "yarn")
    for key, value in {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}.items():
        set_config(folder, f"text_config.rope_parameters.{key}", value)
    tokens = random_prompt(LENGTH, 3)
    plain = reference_logits(reference_model(checkpoint(LAYOUTS["dense"]).folder), torch.tensor([tokens]))[0]
    expected = reference_logits(reference_model(folder), torch.tensor([tokens]))[0]
    assert (expected - plain).abs().max() > 0.01
    assert_same_logits(logits_in_chunks(load(folder), tokens, [40]), expected)
