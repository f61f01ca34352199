"""Our own engine behind the protocol that the chain knows."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from draftproof.engine.engine import Engine
from draftproof.engine.request import Request
from draftproof.kernels.noise.reference import gumbel_noise
from draftproof.links.running_engine import Arm, Difference, DraftCounts, Generated, Prompt, Sampling
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.state_store import StateStore, WindowKind
from draftproof.text.tokenizer import Tokenizer


class NativeEngine:
    """Answers one prompt at a time with one engine; both arms share its weights.

    Args:
        engine: the engine.
        tokenizer: of the same checkpoint.
        draft_tokens: K of the speculative arm.
        probe: a second state store of the same model, to compute logits again when answers differ.
    """

    name = "draftproof"

    def __init__(self, engine: Engine, tokenizer: Tokenizer, draft_tokens: int, probe: StateStore) -> None:
        self.draft_tokens = draft_tokens
        self._engine = engine
        self._tokenizer = tokenizer
        self._probe = probe
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
    def explain(self, prompt: Prompt, sampling: Sampling, plain: Generated, speculative: Generated) -> Difference:
        """Compute the deciding logits twice, alone and within a block of rows, and compare the gap with rounding."""
        pairs = zip(plain.token_ids, speculative.token_ids, strict=False)
        shorter = min(len(plain.token_ids), len(speculative.token_ids))
        index = next((place for place, (left, right) in enumerate(pairs) if left != right), shorter)
        tokens = [*self._ids(prompt), *plain.token_ids[:index]]
        if index == shorter:
            return Difference(index, float("inf"), 0.0)
        block, alone = self._last_logits(tokens, 4), self._last_logits(tokens, 1)
        scale = sampling.temperature or 1.0
        scores = alone / scale
        if sampling.temperature:
            seed, position = torch.tensor([sampling.seed]), torch.tensor([len(tokens)])
            scores = scores + gumbel_noise(seed, position, torch.arange(scores.shape[-1]))[0]
        gap = scores[plain.token_ids[index]] - scores[speculative.token_ids[index]]
        return Difference(index, abs(float(gap)), float((block - alone).abs().max()) / scale)

    def _last_logits(self, tokens: list[int], tail: int) -> Tensor:
        """[vocab] logits after the last token, when the last `tail` tokens are computed in one window."""
        pages = range(1, 1 + -(-len(tokens) // self._probe.sizes.page_size))
        self._probe.open_slot(0, list(pages))
        hidden = torch.empty(0)
        head = max(len(tokens) - tail, 0)
        for part in (tokens[:head], tokens[head:]):
            if part:
                window = self._probe.begin([0], [len(part)], WindowKind.EXTEND)
                hidden = self._engine.model.forward(torch.tensor([part]), window.window)
                window.commit([len(part)])
        return self._engine.model.logits(hidden[0, -1])

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(prompt.text))


def _subtract(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(now - then for now, then in zip(after, before + (0,) * (len(after) - len(before)), strict=True))
