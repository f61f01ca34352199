"""Our own engine behind the protocol that the chain knows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from time import perf_counter

import torch
from torch import Tensor

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.engine.build import TORCH_TYPES, BuiltEngine, build_engine, state_sizes
from draftproof.engine.config import EngineConfig
from draftproof.engine.request import Request
from draftproof.kernels.noise.reference import gumbel_noise
from draftproof.links.running_engine import Arm, Difference, DraftCounts, Generated, Prompt, Sampling
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.state_store import StateStore, WindowKind
from draftproof.text.tokenizer import Tokenizer

BLOCK_WIDTHS = (2, 3, 4, 17)
"""Rows in which a deciding row is computed again: widths of verify windows, and one of a prompt chunk."""


class NativeEngine:
    """Answers one prompt at a time with one engine; both arms share its weights.

    Args:
        built: the engine.
        config: how it was built.
        tokenizer: of the same checkpoint.
    """

    name = "draftproof"

    def __init__(self, built: BuiltEngine, config: EngineConfig, tokenizer: Tokenizer) -> None:
        self.draft_tokens = config.draft_tokens
        self.device = config.device
        self.built = built
        self._config = config
        self._engine = built.engine
        self._tokenizer = tokenizer
        self._answers = 0

    def generate(self, prompt: Prompt, sampling: Sampling, arm: Arm) -> Generated:
        """Continue a prompt; time counts from the first output token."""
        self._answers += 1
        name = f"answer-{self._answers}"
        parameters = SamplingParameters(
            temperature=sampling.temperature, seed=sampling.seed, max_tokens=sampling.max_tokens
        )
        drafts = self.draft_tokens if arm is Arm.SPECULATIVE else 0
        self._engine.add(Request(name, self._ids(prompt), parameters, drafts))
        before = self._engine.acceptance
        tokens: list[int] = []
        first = last = 0.0
        while self._engine.has_work:
            for output in self._engine.step():
                tokens.extend(output.token_ids)
                last = perf_counter()
                first = first or last
        counts = DraftCounts(
            self._engine.acceptance.passes - before.passes,
            _subtract(self._engine.acceptance.proposed, before.proposed),
            _subtract(self._engine.acceptance.accepted, before.accepted),
        )
        return Generated(tuple(tokens), self._tokenizer.decode(tokens), last - first, counts)

    @torch.inference_mode()
    def explain(
        self, prompt: Prompt, sampling: Sampling, plain: Generated, speculative: Generated
    ) -> Difference:
        """Compute the deciding logits alone and within blocks of rows, and compare the gap with rounding."""
        pairs = zip(plain.token_ids, speculative.token_ids, strict=False)
        shorter = min(len(plain.token_ids), len(speculative.token_ids))
        index = next((place for place, (left, right) in enumerate(pairs) if left != right), shorter)
        tokens = [*self._ids(prompt), *plain.token_ids[:index]]
        if index == shorter:
            return Difference(index, float("inf"), 0.0)
        alone = self._last_logits(tokens, 1)
        noise = max(float((self._last_logits(tokens, width) - alone).abs().max()) for width in BLOCK_WIDTHS)
        # Two ways of computing may agree by luck; nothing is known better than one step of the compute type.
        step = torch.finfo(TORCH_TYPES[self._config.activations]).eps * float(alone.abs().max())
        scale = sampling.temperature or 1.0
        scores = alone / scale
        if sampling.temperature:
            seed, position = torch.tensor([sampling.seed]), torch.tensor([len(tokens)])
            scores = scores + gumbel_noise(seed, position, torch.arange(scores.shape[-1]))[0]
        gap = scores[plain.token_ids[index]] - scores[speculative.token_ids[index]]
        return Difference(index, abs(float(gap)), max(noise, step) / scale)

    @cached_property
    def _probe(self) -> StateStore:
        """A second state store for one sequence: made only when answers differ."""
        sizes = state_sizes(replace(self._config, max_sequences=1), self.built.max_length)
        return StateStore(
            self.built.spec, sizes, TORCH_TYPES[self._config.activations], torch.device(self._config.device)
        )

    def _last_logits(self, tokens: list[int], tail: int) -> Tensor:
        """[vocab] logits after the last token, when the last `tail` tokens are computed in one window."""
        self._probe.open_slot(0, list(range(1, self._probe.sizes.pages)))
        hidden = torch.empty(0)
        head = max(len(tokens) - tail, 0)
        for part in (tokens[:head], tokens[head:]):
            if part:
                window = self._probe.begin([0], [len(part)], WindowKind.EXTEND)
                rows = torch.tensor([part], device=self._config.device)
                hidden = self._engine.model.forward(rows, window.window)
                window.commit([len(part)])
        return self._engine.model.logits(hidden[0, -1]).cpu()

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        # A chat prompt is rendered text: its control tokens are meant as such.
        encode = self._tokenizer.encode_rendered if prompt.kind == "chat" else self._tokenizer.encode
        return tuple(encode(prompt.text))


def build_native_engine(checkpoint: Checkpoint, config: EngineConfig) -> NativeEngine:
    """Load a checkpoint behind the protocol; errors as `build_engine`."""
    built = build_engine(checkpoint, config)
    assert checkpoint.folder is not None
    return NativeEngine(built, config, Tokenizer.load(checkpoint.folder))


def _subtract(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        now - then for now, then in zip(after, before + (0,) * (len(after) - len(before)), strict=True)
    )
