"""The MTP head against one put together here from transformers' own decoder layer, norms and nn.Linear.

That one has no cache: every chain step runs it over all slots again. Slot p takes the embedding of token
p + 1 and the target's hidden state of position p after the final norm; a chained slot takes the head's own
normed output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense_modules
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe_modules
from transformers.models.qwen3_next import modeling_qwen3_next as next_modules

from draftproof.layers.linear import DenseLinear
from draftproof.models.loading import LoadedModel
from draftproof.models.qwen3_5_mtp import MtpHead
from draftproof.runtime.state_store import WindowKind
from tests.models.reference import assert_same_logits, reference_model, submodule_state
from tests.support.checkpoints import (
    BF16,
    FP32,
    MTP_NVFP4,
    NVFP4_ROUTED,
    CheckpointOptions,
    ExpertLayout,
    Family,
    WrittenCheckpoint,
)
from tests.support.engines import Settings, load, make_store, random_prompt
from tests.support.faults import copy_of, set_exclude_list

OPTIONS = {
    "dense": CheckpointOptions(precision=FP32),
    "dense, tied": CheckpointOptions(precision=FP32, tied=True),
    "dense, flat": CheckpointOptions(Family.QWEN3_5_TEXT, precision=FP32),
    "moe": CheckpointOptions(moe=True, precision=FP32),
    "moe, fused head": CheckpointOptions(moe=True, precision=FP32, mtp_experts=ExpertLayout.FUSED),
    "moe, bf16": CheckpointOptions(moe=True, precision=BF16, shards=3),
    "qwen3-next": CheckpointOptions(Family.QWEN3_NEXT, moe=True, precision=FP32),
}
COUNT, DEPTH = 30, 5
TOKENS = random_prompt(COUNT + 1 + DEPTH, 8)

Models = Callable[[str], tuple[LoadedModel, "AssembledHead"]]


@dataclass(frozen=True)
class AssembledHead:
    """A head from transformers' parts, and the target whose hidden states it reads."""

    target: nn.Module
    trunk: nn.Module
    fc: nn.Linear
    embedding_norm: nn.Module
    hidden_norm: nn.Module
    layer: nn.Module
    norm: nn.Module

    def hidden(self, tokens: Sequence[int]) -> Tensor:
        """[tokens, hidden] of the target after its final norm."""
        return self.trunk(input_ids=torch.tensor([tokens]), use_cache=False).last_hidden_state[0]

    def slots(self, next_tokens: Sequence[int], hidden: Tensor) -> Tensor:
        """[slots, hidden] of the head after its norm, slots 0 to the last."""
        embedded = self.trunk.embed_tokens(torch.tensor([next_tokens]))
        state = self.fc(torch.cat((self.embedding_norm(embedded), self.hidden_norm(hidden[None])), -1))
        count = len(next_tokens)
        angles = self.trunk.rotary_emb(state, torch.arange(count).view(1, -1))
        mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
        return self.norm(self.layer(state, position_embeddings=angles, attention_mask=mask))[0]

    def chain(self, tokens: Sequence[int], chained: Sequence[int]) -> Tensor:
        """[1 + len(chained), vocab] draft logits after `tokens`, with `chained` taken as drafts in turn."""
        inputs, following = self.hidden(tokens[:-1]), list(tokens[1:])
        logits = []
        for token in (*chained, None):
            output = self.slots(following, inputs)[-1]
            logits.append(self.target.lm_head(output))
            if token is not None:
                inputs = torch.cat((inputs, output[None]))
                following.append(token)
        return torch.stack(logits)


def assemble(written: WrittenCheckpoint) -> AssembledHead:
    target = reference_model(written.folder)
    trunk = target.model.language_model if hasattr(target.model, "language_model") else target.model
    if written.options.family is Family.QWEN3_NEXT:
        modules, name = next_modules, "Qwen3Next"
    else:
        modules, name = (moe_modules, "Qwen3_5Moe") if written.options.moe else (dense_modules, "Qwen3_5")
    config = trunk.config
    weights = written.tensors
    hidden = config.hidden_size

    def norm(tensor: str) -> nn.Module:
        module = getattr(modules, f"{name}RMSNorm")(hidden, eps=config.rms_norm_eps)
        module.load_state_dict({"weight": weights[tensor]})
        return module

    layer_config = type(config)(
        **{**config.to_dict(), "layer_types": ["full_attention"] * config.num_hidden_layers}
    )
    layer_config._attn_implementation = "eager"
    layer = getattr(modules, f"{name}DecoderLayer")(layer_config, 0)
    layer.load_state_dict(submodule_state(weights, "mtp.layers.0."))
    fc = nn.Linear(2 * hidden, hidden, bias=False)
    fc.load_state_dict({"weight": weights["mtp.fc.weight"]})
    return AssembledHead(
        target=target,
        trunk=trunk,
        fc=fc,
        embedding_norm=norm("mtp.pre_fc_norm_embedding.weight"),
        hidden_norm=norm("mtp.pre_fc_norm_hidden.weight"),
        layer=layer.eval(),
        norm=norm("mtp.norm.weight"),
    )


@pytest.fixture(scope="module")
def models(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> Models:
    @cache
    def get(layout: str) -> tuple[LoadedModel, AssembledHead]:
        written = checkpoint(OPTIONS[layout])
        return load(written.folder), assemble(written)

    return get


@torch.inference_mode()
def our_chain(
    model: LoadedModel, tokens: Sequence[int], chained: Sequence[int], chunks: Sequence[int] = (1000,)
) -> Tensor:
    """The same as `AssembledHead.chain`, with pages and with the committed rows fed in chunks."""
    head = model.head
    assert head is not None
    count = len(tokens) - 1
    store = make_store(model, Settings(slots=1, max_length=64, page_size=8))
    store.open_slot(0, [5, 2, 7, 1, 3, 6, 4])
    begin, sizes = 0, iter(chunks)
    size, output = 0, torch.empty(0)
    while begin < count:
        size = next(sizes, size)
        rows = torch.tensor([tokens[begin : min(begin + size, count)]])
        width = rows.shape[1]
        window = store.begin([0], [width], WindowKind.EXTEND)
        hidden = model.target.forward(rows, window.window)
        window.commit([width])
        following = torch.tensor([tokens[begin + 1 : begin + 1 + width]])
        attention = store.attention_rows([0], [begin], [width])
        output = head.forward(following, hidden, attention, store.head_caches)[:, -1:]
        begin += width
    logits = [head.logits(output)[0, 0]]
    for step, token in enumerate(chained):
        attention = store.attention_rows([0], [count + step], [1])
        output = head.forward(torch.tensor([[token]]), output, attention, store.head_caches)
        logits.append(head.logits(output)[0, 0])
    return torch.stack(logits)


@pytest.mark.parametrize("layout", OPTIONS)
def test_draft_logits_of_a_chain(models: Models, layout: str) -> None:
    ours, theirs = models(layout)
    tokens, chained = TOKENS[: COUNT + 1], TOKENS[COUNT + 1 :]
    with torch.inference_mode():
        expected = theirs.chain(tokens, chained)
    assert expected.std() > 0.5
    assert_same_logits(our_chain(ours, tokens, chained), expected)


@pytest.mark.parametrize("chunks", [[1], [7], [8, 1, 15], [29]])
def test_the_heads_cache_may_be_filled_in_any_chunks(models: Models, chunks: list[int]) -> None:
    ours, _ = models("moe")
    tokens, chained = TOKENS[: COUNT + 1], TOKENS[COUNT + 1 :]
    assert_same_logits(our_chain(ours, tokens, chained, chunks), our_chain(ours, tokens, chained))


def test_the_first_draft_has_one_slot_when_the_prompt_has_one_token(models: Models) -> None:
    ours, theirs = models("dense")
    with torch.inference_mode():
        expected = theirs.chain(TOKENS[:2], TOKENS[2:5])
    assert_same_logits(our_chain(ours, TOKENS[:2], TOKENS[2:5]), expected)


@pytest.mark.parametrize("counts", [[4], [1], [3, 3], [2, 4], [4, 1]])
@torch.inference_mode()
def test_the_last_slot_alone_is_the_last_of_all_slots(models: Models, counts: list[int]) -> None:
    """And its chain goes on alike, so the slots before it have left what later ones read."""
    ours, _ = models("moe")
    head = ours.head
    assert head is not None
    width, slots = max(counts), list(range(len(counts)))
    hidden = torch.randn(len(counts), width, ours.target.spec.hidden_size, generator=torch.Generator())
    ids = torch.tensor([TOKENS[:width]] * len(counts))
    outputs = []
    for run in (head.forward, head.last):
        store = make_store(ours, Settings(slots=2, max_length=64, page_size=8))
        for slot, pages in zip(slots, ([5, 6, 7], [3, 1, 2]), strict=False):
            store.open_slot(slot, pages)
        first = run(ids, hidden, store.attention_rows(slots, [0] * len(slots), counts), store.head_caches)
        if run == head.forward:
            first = torch.stack([row[count - 1 : count] for row, count in zip(first, counts, strict=True)])
        rows = store.attention_rows(slots, counts, [1] * len(slots))
        outputs.append((first, head.forward(ids[:, :1], first, rows, store.head_caches)))
    for one, other in zip(*outputs, strict=True):
        assert one.shape == (len(counts), 1, hidden.shape[2])
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def with_fc(head: MtpHead, weight: Tensor) -> MtpHead:
    return replace(head, fc=DenseLinear(weight), layers=())


def test_fc_reads_the_embedding_first_and_the_normed_hidden_second(models: Models) -> None:
    """With fc = [I | 0] the normed embedding enters the layer, with [0 | I] the normed hidden state."""
    ours, _ = models("dense")
    assert ours.head is not None
    width = ours.target.spec.hidden_size
    one, zero = torch.eye(width), torch.zeros(width, width)
    hidden = torch.randn(1, 3, width, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, 6, 7]])
    rows = make_store(ours, Settings(slots=1)).attention_rows([0], [0], [3])
    head = ours.head
    cases = (
        (torch.cat((one, zero), 1), head.embedding_norm(ours.target.embed(ids))),
        (torch.cat((zero, one), 1), head.hidden_norm(hidden)),
    )
    for weight, entering in cases:
        torch.testing.assert_close(with_fc(head, weight).forward(ids, hidden, rows, ()), head.norm(entering))


def test_the_head_reads_the_hidden_state_after_the_final_norm(models: Models) -> None:
    """The target's output is its final norm's, bit for bit what lm_head reads."""
    ours, theirs = models("dense")
    store = make_store(ours, Settings(slots=1))
    store.open_slot(0, [4, 2])
    with torch.inference_mode():
        window = store.begin([0], [20], WindowKind.EXTEND)
        hidden = ours.target.forward(torch.tensor([TOKENS[:20]]), window.window)
        window.commit([20])
        torch.testing.assert_close(hidden[0], theirs.hidden(TOKENS[:20]), atol=1e-4, rtol=1e-4)


def test_embedding_lm_head_and_rotary_tables_are_the_targets_own(models: Models) -> None:
    for layout in ("dense", "dense, tied", "moe"):
        ours, _ = models(layout)
        assert ours.head is not None
        assert ours.head.target is ours.target
        assert ours.head.target.rotary is ours.target.rotary
    tied, _ = models("dense, tied")
    assert tied.target.lm_head.embedding.data_ptr() == tied.target.embedding.data_ptr()  # type: ignore[attr-defined]


def test_fused_and_separate_experts_of_the_head_give_identical_drafts(models: Models) -> None:
    separate, _ = models("moe")
    fused, _ = models("moe, fused head")
    tokens, chained = TOKENS[: COUNT + 1], TOKENS[COUNT + 1 :]
    assert torch.equal(our_chain(separate, tokens, chained), our_chain(fused, tokens, chained))


EXCLUDE_LISTS: Mapping[str, list[str]] = {
    "mtp*": ["lm_head", "mtp*"],
    "names of modules": ["mtp.fc", "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.gate"],
    "another numbering": ["model.layers.60*", "mtp.layers.60*"],
    "nothing": [],
}


@pytest.mark.parametrize("excluded", EXCLUDE_LISTS)
@pytest.mark.parametrize("mtp_precision", [BF16, MTP_NVFP4], ids=lambda precision: precision.name)
def test_exclude_lists_change_nothing_about_the_head(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint],
    tmp_path: Path,
    excluded: str,
    mtp_precision: object,
) -> None:
    """Precision is read from the tensors; what a list says about them is for the report only."""
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=mtp_precision)  # type: ignore[arg-type]
    written = checkpoint(options)
    folder = copy_of(written.folder, tmp_path / "listed")
    set_exclude_list(folder, EXCLUDE_LISTS[excluded])
    tokens, chained = TOKENS[: COUNT + 1], TOKENS[COUNT + 1 :]
    listed, original = load(folder), load(written.folder)
    assert torch.equal(our_chain(listed, tokens, chained), our_chain(original, tokens, chained))
