"""What every route works with: made once, when the server starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from draftproof.server.settings import ServerSettings
from draftproof.serving.client import EngineClient
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.output_rules import OutputRules
from draftproof.text.tokenizer import Tokenizer


class RulesCheck(Protocol):
    """Says whether an output can be held to rules, before a request is handed to the engine."""

    def check(self, rules: OutputRules) -> None:
        """Raise UsageError, with what is wrong in the schema or grammar, when it cannot."""
        ...


@dataclass(frozen=True)
class ServerContext:
    """Everything that routes need.

    Attributes:
        client: the engine.
        tokenizer: of the checkpoint.
        template: of the checkpoint; None when it has none, and then there is no chat.
        settings: of the server.
        rules_check: looks at grammars and schemas; None refuses them.
    """

    client: EngineClient
    tokenizer: Tokenizer
    template: ChatTemplate | None
    settings: ServerSettings
    rules_check: RulesCheck | None
