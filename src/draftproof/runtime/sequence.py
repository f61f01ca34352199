"""One sequence as the scheduler and the engine see it: token ids and counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TakenSnapshot:
    """A copy of a sequence's recurrent state that nobody else can find yet.

    Attributes:
        position: leading tokens that the state has taken in.
        number: of the snapshot in the state store.
    """

    position: int
    number: int


@dataclass(eq=False)
class Sequence:
    """Tokens of one request and how many of them are in the state store.

    Attributes:
        request_id: whose it is.
        prompt: token ids given.
        max_tokens: most tokens that will be generated; prompt and output together fit the context.
        output: token ids generated so far.
        after_end: tokens after a finished output that its state may have taken in.
        committed: leading tokens whose effect is in the state store. While decoding it is one less than all
            tokens: the newest one is the first row of the next window.
        drafts: proposals for the tokens after the newest one.
        held_back: given tokens that no prompt step commits: a device step's first window begins with the
            last one of them, so that the first token is sampled as every other.
        recomputed: output tokens that are computed as a part of the prompt, because the state was given up
            after they had been generated.
        in_flight_rows: rows that steps may commit which were launched and not read yet.
        head_rows: leading rows that the MTP head has seen without a hole.
        slot: state slot while running.
        pages: attention pages while running.
        arrival: order in which sequences came.
        turn: when it last got a prompt step, or its place among those that wait for one.
        preemptions: how often its state was given up.
        cached_tokens: prompt tokens whose state was found when it was first admitted; None before.
        checkpoints: lengths at which prompt steps end so that a snapshot can be taken, rising.
        taken: snapshots of it that are not published yet.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    output: list[int] = field(default_factory=list)
    after_end: tuple[int, ...] = ()
    committed: int = 0
    drafts: tuple[int, ...] = ()
    held_back: int = 0
    recomputed: int = 0
    in_flight_rows: int = 0
    head_rows: int = 0
    slot: int = -1
    pages: tuple[int, ...] = ()
    arrival: int = -1
    turn: int = -1
    preemptions: int = 0
    cached_tokens: int | None = None
    checkpoints: tuple[int, ...] = ()
    taken: list[TakenSnapshot] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Prompt and output tokens."""
        return len(self.prompt) + len(self.output)

    @property
    def given(self) -> int:
        """Tokens that are computed as a prompt."""
        return len(self.prompt) + self.recomputed

    @property
    def prompt_rows(self) -> int:
        """Given tokens that prompt steps commit."""
        return self.given - self.held_back

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

    @property
    def known(self) -> int:
        """Tokens that are known, those after the end included."""
        return self.length + len(self.after_end)

    def tokens(self, begin: int, end: int) -> tuple[int, ...]:
        """Tokens of the positions from `begin` to before `end`, of prompt, output and what follows it."""
        split = len(self.prompt)
        if end <= split:
            return self.prompt[begin:end]
        written = (*self.output, *self.after_end) if self.after_end else self.output
        return (*self.prompt[begin:split], *written[max(begin - split, 0) : end - split])
