"""The shape of a choice of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.server.token_logprobs import chat_logprobs
from draftproof.server.usage import ChoiceUsage
from draftproof.serving.messages import GenerationChunk, GenerationRequest, GenerationUsage
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason
from draftproof.text.output_rules import Thinking
from draftproof.text.reasoning import ReasoningCounter
from draftproof.text.response_parser import (
    ContentDelta,
    ParsedResponse,
    ReasoningDelta,
    ResponseParser,
    ResponsePart,
    ToolCallArguments,
    ToolCallBegin,
)
from draftproof.text.tokenizer import Tokenizer
from draftproof.text.tool_calls import ToolFunction

TOOL_CALLS = "tool_calls"


@dataclass(frozen=True)
class ChatPlan:
    """What a choice is of.

    Attributes:
        index: of the choice.
        request: to the engine.
        functions: whose calls are to be found in the text.
        thinking: None when nothing is reasoning.
        shows_reasoning: reasoning is told.
        shows_token_ids: token ids are told.
    """

    index: int
    request: GenerationRequest
    functions: tuple[ToolFunction, ...]
    thinking: Thinking | None
    shows_reasoning: bool
    shows_token_ids: bool


class ChatChoice:
    """One choice.

    Args:
        plan: what it is of.
        tokenizer: of the checkpoint.
    """

    def __init__(self, plan: ChatPlan, tokenizer: Tokenizer) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._parser = ResponseParser(plan.functions, plan.thinking)
        self._counter = ReasoningCounter(tokenizer, plan.thinking)
        self._tells_logprobs = plan.request.parameters.logprobs is not None
        self._tells_tokens = self._tells_logprobs or plan.shows_token_ids
        self._has_begun = False
        self._has_calls = False
        self._cost = ChoiceUsage(0, GenerationUsage(len(plan.request.prompt_ids), 0, 0, AcceptanceCounts()))

    @property
    def cost(self) -> ChoiceUsage:
        """Of what was taken so far."""
        return self._cost

    def entries(self, chunk: GenerationChunk) -> Sequence[dict[str, Any]]:
        """The next chunk; the first one is preceded by the role."""
        delta = self._delta(self.parts(chunk))
        if not (delta or chunk.finish_reason or (self._tells_tokens and chunk.token_ids)):
            return ()
        entry = {"index": self._plan.index, "delta": delta, **self._rest(chunk)}
        if self._has_begun:
            return (entry,)
        self._has_begun = True
        return (self._opening(), entry)

    def whole(self, output: GenerationChunk) -> dict[str, Any]:
        """The whole output."""
        parsed = ParsedResponse.of(self.parts(output))
        message: dict[str, Any] = {
            "role": "assistant",
            "content": parsed.content if parsed.content or not parsed.calls else None,
            "refusal": None,
        }
        reasoning = parsed.reasoning if parsed.reasoning and self._plan.shows_reasoning else None
        message |= {"reasoning": reasoning, "reasoning_content": reasoning}
        if parsed.calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in parsed.calls
            ]
        choice = {"index": self._plan.index, "message": message, **self._rest(output)}
        if self._plan.shows_token_ids:
            choice["prompt_token_ids"] = list(self._plan.request.prompt_ids)
        return choice

    def parts(self, chunk: GenerationChunk) -> tuple[ResponsePart, ...]:
        """What the chunk's text means; takes note of calls and of its cost."""
        parts = self._parser.push(chunk.text) if chunk.text else ()
        if chunk.finish_reason is not None:
            parts += self._parser.finish()
        self._has_calls = self._has_calls or any(isinstance(part, ToolCallBegin) for part in parts)
        self._cost = ChoiceUsage(0, chunk.usage, self._counter.push(chunk.token_ids))
        return parts

    def _delta(self, parts: Sequence[ResponsePart]) -> dict[str, Any]:
        """Parts as one delta: clients add up each field by itself."""
        delta: dict[str, Any] = {}
        calls: dict[int, dict[str, Any]] = {}
        for part in parts:
            match part:
                case ContentDelta():
                    delta["content"] = delta.get("content", "") + part.text
                case ReasoningDelta() if self._plan.shows_reasoning:
                    text = delta.get("reasoning", "") + part.text
                    delta["reasoning"] = delta["reasoning_content"] = text
                case ToolCallBegin():
                    calls[part.index] = {
                        "index": part.index,
                        "id": part.call_id,
                        "type": "function",
                        "function": {"name": part.name, "arguments": ""},
                    }
                case ToolCallArguments():
                    call = calls.setdefault(part.index, {"index": part.index, "function": {"arguments": ""}})
                    call["function"]["arguments"] += part.text
        if calls:
            delta[TOOL_CALLS] = list(calls.values())
        return delta

    def _rest(self, chunk: GenerationChunk) -> dict[str, Any]:
        """What chunks and whole choices share."""
        rest: dict[str, Any] = {
            "logprobs": chat_logprobs(self._tokenizer, chunk.logprobs) if self._tells_logprobs else None,
            "finish_reason": self._finish_reason(chunk.finish_reason),
            "stop_reason": chunk.matched_stop,
        }
        if self._plan.shows_token_ids:
            rest["token_ids"] = list(chunk.token_ids)
        return rest

    def _finish_reason(self, reason: FinishReason | None) -> str | None:
        if reason is None:
            return None
        return TOOL_CALLS if self._has_calls and reason is FinishReason.STOP else reason.value

    def _opening(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "index": self._plan.index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        if self._plan.shows_token_ids:
            entry["prompt_token_ids"] = list(self._plan.request.prompt_ids)
        return entry
