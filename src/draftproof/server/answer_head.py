"""What all answers to generation requests begin with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from draftproof import __version__
from draftproof.server.context import ServerContext

FINGERPRINT = f"draftproof-{__version__}"
WARNING_HEADER = "x-draftproof-warning"


@dataclass(frozen=True)
class AnswerHead:
    """Identity of one answer.

    Attributes:
        answer_id: of the answer, with the prefix of its kind.
        model: name that the answer carries.
        created: seconds since the epoch.
        warning: what its reader must know; None for nothing.
    """

    answer_id: str
    model: str
    created: int
    warning: str | None

    @classmethod
    def of(cls, context: ServerContext, prefix: str, request_id: str) -> AnswerHead:
        """The head of an answer that is made now."""
        return cls(
            answer_id=f"{prefix}-{request_id}",
            model=context.settings.model_name,
            created=int(time.time()),
            warning=simulation_warning(context),
        )

    def fields(self, kind: str) -> dict[str, Any]:
        """The first fields of an object of `kind`."""
        head: dict[str, Any] = {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }
        if self.warning is not None:
            head["warning"] = self.warning
        return head

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {} if self.warning is None else {WARNING_HEADER: self.warning}


def simulation_warning(context: ServerContext) -> str | None:
    """What every answer says when acceptance is made up."""
    length = context.client.ready.simulated_accept_length
    if length is None:
        return None
    return f"acceptance is simulated (accept length {length:g}): the text means nothing"
