"""What a request asks of the sampler, checked once and then fixed. Needs no torch.

The meaning of each field is the one that vLLM's and OpenAI's API documents give it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from draftproof.errors import UsageError

GREEDY_BELOW = 1e-5
"""Temperatures below this take the most likely token, which is what they would draw anyway."""

SEED_MINIMUM, SEED_MAXIMUM = -(2**63), 2**64 - 1
LARGEST_TEMPERATURE = 1000.0
LARGEST_PENALTY = 2.0
LARGEST_REPETITION_PENALTY = 100.0
LARGEST_BIAS = 100.0


def fresh_seed() -> int:
    """A seed for a request that names none, so that two such requests differ and each can be repeated."""
    return secrets.randbits(63)


@dataclass(frozen=True)
class SamplingParameters:
    """How the next token of one request is chosen, and when the request ends.

    Attributes:
        temperature: 0 takes the most likely token (greedy); larger is more random; at most 1000.
        top_k: keep the k most likely tokens (tokens that tie with the k-th stay); 0 or -1 keeps all.
        top_p: keep the most likely tokens whose probabilities first reach this sum, in (0, 1].
        min_p: drop tokens less likely than this share of the most likely one, in [0, 1].
        repetition_penalty: divides the positive and multiplies the negative logits of tokens in the prompt or
            the output; 1 is off, from 0.01 to 100.
        presence_penalty: taken from the logit of each token in the output, once.
        frequency_penalty: taken from the logit of a token for each time that it is in the output.
        min_tokens: no end-of-sequence token, stop token or stop string before this many output tokens.
        max_tokens: the output ends at this many tokens; None leaves only the context's end.
        logit_bias: (token id, bias) pairs, each bias added to that token's logit.
        stop_token_ids: tokens that end the output, besides the model's end-of-sequence tokens.
        stop_strings: texts that end the output.
        ignore_eos: go on after the model's end-of-sequence tokens.
        logprobs: report this many most likely tokens for each output token; None reports none. They are
            log-probabilities of the raw logits, before any other field acts.
        seed: addresses the noise; any signed or unsigned 64-bit number. A fresh one when not given.

    Raises:
        UsageError: a field is out of its range; the message names the field, the value and the range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    max_tokens: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    seed: int = field(default_factory=fresh_seed)

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_lengths()
        self._check_tokens_and_texts()

    @property
    def is_greedy(self) -> bool:
        """True when the most likely token is taken and no noise is drawn."""
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        """True when the tokens so far change the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def signed_seed(self) -> int:
        """The seed's 64 bits as a signed number, as int64 tensors hold it."""
        return (self.seed + 2**63) % 2**64 - 2**63

    def _check_numbers(self) -> None:
        _require_number("temperature", self.temperature, 0.0, LARGEST_TEMPERATURE)
        _require_number("top_p", self.top_p, 0.0, 1.0, "above 0 and at most 1")
        if self.top_p == 0.0:
            raise UsageError(f"top_p is {self.top_p!r}; allowed: above 0 and at most 1")
        _require_number("min_p", self.min_p, 0.0, 1.0)
        _require_number(
            "repetition_penalty",
            self.repetition_penalty,
            1 / LARGEST_REPETITION_PENALTY,
            LARGEST_REPETITION_PENALTY,
        )
        for name in ("presence_penalty", "frequency_penalty"):
            _require_number(name, getattr(self, name), -LARGEST_PENALTY, LARGEST_PENALTY)

    def _check_lengths(self) -> None:
        _require_integer("top_k", self.top_k, "-1 or 0 (all tokens) or a positive number", low=-1)
        _require_integer("min_tokens", self.min_tokens, "at least 0", low=0)
        if self.max_tokens is not None:
            _require_integer("max_tokens", self.max_tokens, "at least 1", low=1)
            if self.min_tokens > self.max_tokens:
                raise UsageError(
                    f"min_tokens is {self.min_tokens}; allowed: at most max_tokens ({self.max_tokens})"
                )
        if self.logprobs is not None:
            _require_integer("logprobs", self.logprobs, "at least 0", low=0)
        _require_integer("seed", self.seed, "a 64-bit number", low=SEED_MINIMUM, high=SEED_MAXIMUM)

    def _check_tokens_and_texts(self) -> None:
        for token_id, bias in self.logit_bias:
            _require_integer("logit_bias token id", token_id, "at least 0", low=0)
            _require_number(f"logit_bias of token {token_id}", bias, -LARGEST_BIAS, LARGEST_BIAS)
        if len({token_id for token_id, _ in self.logit_bias}) < len(self.logit_bias):
            raise UsageError("logit_bias names a token twice; allowed: each token once")
        for token_id in self.stop_token_ids:
            _require_integer("stop_token_ids", token_id, "at least 0", low=0)
        for text in self.stop_strings:
            if not isinstance(text, str) or not text:
                raise UsageError(f"stop_strings holds {text!r}; allowed: texts of at least one character")


def _require_number(name: str, value: object, low: float, high: float, allowed: str = "") -> None:
    """Refuse what is no number in [low, high]; `allowed` replaces the range in the message."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A NaN fails both comparisons.
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise UsageError(f"{name} is {value!r}; allowed: {allowed or f'from {low:g} to {high:g}'}")


def _require_integer(name: str, value: object, allowed: str, low: int, high: int | None = None) -> None:
    """Refuse what is no integer in [low, high]."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):  # type: ignore[operator]
        raise UsageError(f"{name} is {value!r}; allowed: {allowed}")
