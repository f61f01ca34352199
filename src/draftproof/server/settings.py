"""What the HTTP server was started with, fixed before it takes a request."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SamplingDefaults:
    """What a request that leaves a field out gets: OpenAI's values, unless the checkpoint recommends others.

    Attributes:
        temperature: see `SamplingParameters`, as are all others.
        top_p: likewise.
        top_k: likewise.
        min_p: likewise.
        repetition_penalty: likewise.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the HTTP server.

    Attributes:
        model_names: names that requests may use for the model; answers carry the first.
        model_root: where the checkpoint is, as the user named it.
        created: seconds since the epoch at which the server started; clients see it as the model's age.
        api_keys: requests must carry one of them; none are asked for when empty.
        max_body_bytes: larger request bodies are refused with 413.
        body_seconds: a request whose body has not arrived after so long is dropped.
        max_prompts: prompts of one request to `/v1/completions`.
        max_choices: `n` times the prompts of one request.
        max_logprobs: most `top_logprobs`.
        request_seconds: a request that is not finished after so long ends with an error; None for no limit.
        stalled_seconds: a client that takes nothing of its stream for so long is given up.
        opening_seconds: a stream that has nothing to send after so long begins with its headers alone; an
            error that comes sooner has a status of its own.
        keep_alive_seconds: a stream that sent nothing for so long sends a comment.
        sampling: what a request that leaves fields out gets.
        allowed_origins: web pages of these origins may call the API; none by default.
        is_local: only this machine reaches the server; without keys it answers to this machine's names alone.
    """

    model_names: tuple[str, ...]
    model_root: str
    created: int
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 16 << 20
    body_seconds: float = 60.0
    max_prompts: int = 256
    max_choices: int = 256
    max_logprobs: int = 20
    request_seconds: float | None = None
    stalled_seconds: float = 120.0
    opening_seconds: float = 1.0
    keep_alive_seconds: float = 15.0
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    allowed_origins: tuple[str, ...] = ()
    is_local: bool = False

    @property
    def model_name(self) -> str:
        """The name that answers carry."""
        return self.model_names[0]
