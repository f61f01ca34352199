"""The seven links: what each one claims, and what it does not prove."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class LinkDefinition:
    """A layer that must hold.

    Attributes:
        number: position in the chain, from 1.
        holds_when: the sentence that the link's evidence decides.
        does_not_prove: what remains open even when the link holds.
        needs: what the link needs to run, said to a user who did not give it.
    """

    number: int
    holds_when: str
    does_not_prove: str
    needs: str


class Link(Enum):
    """The links by the name that users see, in order."""

    CONFIG = "config"
    WEIGHTS = "weights"
    CODE = "code"
    LAUNCH = "launch"
    BACKEND = "backend"
    FUNCTION = "function"
    SPEED = "speed"

    @property
    def definition(self) -> LinkDefinition:
        """What the link claims."""
        return _DEFINITIONS[self]

    @property
    def number(self) -> int:
        """Position in the chain, from 1."""
        return self.definition.number


_DEFINITIONS = {
    Link.CONFIG: LinkDefinition(
        number=1,
        holds_when="The config declares an MTP head, and no two config files contradict each other.",
        does_not_prove="that the weights which the config promises exist",
        needs="config files",
    ),
    Link.WEIGHTS: LinkDefinition(
        number=2,
        holds_when="Every tensor of head and target is there, whole, of the right shape, and sane.",
        does_not_prove="that the head was trained for this trunk, or predicts anything",
        needs="the checkpoint's files",
    ),
    Link.CODE: LinkDefinition(
        number=3,
        holds_when="The serving stack has a class for this head, and a parameter for every tensor.",
        does_not_prove="that the class is reached with the arguments in use",
        needs="a serving stack to look at",
    ),
    Link.LAUNCH: LinkDefinition(
        number=4,
        holds_when="The arguments switch the head on in this version of the stack, without a lossy option.",
        does_not_prove="that the kernels behind it are right for this GPU",
        needs="a serving stack and its arguments",
    ),
    Link.BACKEND: LinkDefinition(
        number=5,
        holds_when="The kernels that will be chosen are valid for this GPU, and everything fits its memory.",
        does_not_prove="that it runs",
        needs="the name of a GPU",
    ),
    Link.FUNCTION: LinkDefinition(
        number=6,
        holds_when="It runs, drafts are accepted at every position, and the text is the text without them.",
        does_not_prove="that it is faster",
        needs="a running engine: --run",
    ),
    Link.SPEED: LinkDefinition(
        number=7,
        holds_when="Paired measurements with an interval show that it is faster than plain decoding.",
        does_not_prove="the same gain on other traffic, hardware or versions",
        needs="a running engine",
    ),
}
