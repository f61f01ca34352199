"""One sequence as the scheduler and the engine see it: token ids and counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Sequence:
    """Tokens of one request and how many of them are in the state store.

    Attributes:
        request_id: whose it is.
        prompt: token ids given.
        max_tokens: most tokens that will be generated; prompt and output together fit the context.
        output: token ids generated so far.
        committed: leading tokens whose effect is in the state store. While decoding it is one less than all
            tokens: the newest one is the first row of the next window.
        drafts: proposals for the tokens after the newest one.
        held_back: prompt tokens that no prompt step commits: a device step's first window begins with the
            last one of them, so that the first token is sampled as every other.
        slot: state slot while running.
        pages: attention pages while running.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    output: list[int] = field(default_factory=list)
    committed: int = 0
    drafts: tuple[int, ...] = ()
    held_back: int = 0
    slot: int = -1
    pages: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Prompt and output tokens."""
        return len(self.prompt) + len(self.output)

    @property
    def prompt_rows(self) -> int:
        """Prompt tokens that prompt steps commit."""
        return len(self.prompt) - self.held_back

    @property
    def in_prompt(self) -> bool:
        """Whether prompt steps have rows to commit."""
        return self.committed < self.prompt_rows

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return self.max_tokens - len(self.output)

    @property
    def newest(self) -> int:
        """The last token."""
        return self.output[-1] if self.output else self.prompt[-1]
