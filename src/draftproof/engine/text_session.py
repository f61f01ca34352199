"""Text in, text out: one request of an engine with a tokenizer around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request, TokenLogprob
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import FinishReason
from draftproof.text.detokenizer import Detokenizer
from draftproof.text.output import OutputText
from draftproof.text.stop import StopStrings
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextChunk:
    """What one step added.

    Attributes:
        text: whole characters only; a stop string and what follows it never appear.
        token_ids: new tokens; their text may come with a later chunk.
        logprobs: one per token when asked for, else empty.
        finish_reason: None until the last chunk.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None


class TextSession:
    """Streams one request after another through an engine.

    Args:
        engine: with no other requests in it.
        tokenizer: of the engine's checkpoint.
    """

    def __init__(self, engine: EngineLoop, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._count = 0

    def stream(
        self, prompt_ids: tuple[int, ...], parameters: SamplingParameters, draft_tokens: int | None = None
    ) -> Iterator[TextChunk]:
        """Continue a prompt.

        Args:
            prompt_ids: at least one token.
            parameters: how to sample and when to stop.
            draft_tokens: most drafts per window; None for the engine's, 0 for plain decoding.

        Raises:
            UsageError: the prompt cannot be run.
        """
        self._count += 1
        name = f"request-{self._count}"
        ending = set(self._engine.model.spec.end_token_ids) | set(parameters.stop_token_ids)
        hidden = self._tokenizer.special_ids | ending
        text = OutputText(
            Detokenizer(self._tokenizer, hidden), StopStrings(parameters.stop_strings, parameters.min_tokens)
        )
        self._engine.add(Request(name, prompt_ids, parameters, draft_tokens, text))
        try:
            while self._engine.has_work:
                for output in self._engine.step():
                    if output.finish_reason is not None:
                        text.finish()
                    yield TextChunk(text.take(), output.token_ids, output.logprobs, output.finish_reason)
        finally:
            self._engine.abort(name)
