"""The shape of a choice of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.server.token_logprobs import CompletionLogprobs
from draftproof.server.usage import ChoiceUsage
from draftproof.serving.messages import GenerationChunk, GenerationRequest, GenerationUsage
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class CompletionPlan:
    """What a choice is of.

    Attributes:
        index: of the choice.
        prompt_index: of its prompt.
        request: to the engine.
        echo: text before the output; empty without `echo`.
        shows_token_ids: token ids are told.
    """

    index: int
    prompt_index: int
    request: GenerationRequest
    echo: str
    shows_token_ids: bool


class CompletionChoice:
    """One choice.

    Args:
        plan: what it is of.
        tokenizer: of the checkpoint.
    """

    def __init__(self, plan: CompletionPlan, tokenizer: Tokenizer) -> None:
        self._plan = plan
        self._has_begun = False
        self._usage = GenerationUsage(len(plan.request.prompt_ids), 0, 0, AcceptanceCounts())
        wants_logprobs = plan.request.parameters.logprobs is not None
        self._logprobs = CompletionLogprobs(tokenizer, len(plan.echo)) if wants_logprobs else None

    @property
    def cost(self) -> ChoiceUsage:
        """Of what was taken so far."""
        return ChoiceUsage(self._plan.prompt_index, self._usage)

    def entries(self, chunk: GenerationChunk) -> Sequence[dict[str, Any]]:
        """The next chunk."""
        text = chunk.text if self._has_begun else self._plan.echo + chunk.text
        tells_tokens = self._logprobs is not None or self._plan.shows_token_ids
        if not (text or chunk.finish_reason or (tells_tokens and chunk.token_ids)):
            self._usage = chunk.usage
            return ()
        entry = self._entry(chunk, text)
        self._has_begun = True
        return (entry,)

    def whole(self, output: GenerationChunk) -> dict[str, Any]:
        """The whole output."""
        return self._entry(output, self._plan.echo + output.text)

    def _entry(self, chunk: GenerationChunk, text: str) -> dict[str, Any]:
        self._usage = chunk.usage
        entry: dict[str, Any] = {
            "index": self._plan.index,
            "text": text,
            "logprobs": self._logprobs.take(chunk.logprobs) if self._logprobs is not None else None,
            "finish_reason": None if chunk.finish_reason is None else chunk.finish_reason.value,
            "stop_reason": chunk.matched_stop,
        }
        if self._plan.shows_token_ids:
            entry["token_ids"] = list(chunk.token_ids)
            if not self._has_begun:
                entry["prompt_token_ids"] = list(self._plan.request.prompt_ids)
        return entry
