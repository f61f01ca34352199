"""A conversation to a prompt, by the checkpoint's own template.

Templates are code from outside: they run in a sandbox that cannot change what it is given, with the extras
that templates expect (loop controls, ``tojson``, ``raise_exception``, ``strftime_now``, the ``generation``
block).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from draftproof.checkpoint.source import LocalSource
from draftproof.errors import CheckpointError, UsageError
from draftproof.text.tokenizer import CONFIG_FILE, SpecialTokens, read_tokenizer_config

TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE_BYTES = 4 << 20
DEFAULT, WITH_TOOLS = "default", "tool_use"
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Names under which clients send a message's reasoning; templates read the first, or the second."""

REFUSALS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What a template raises, or runs into, when messages are not what it expects."""

Json = Mapping[str, Any]


class ChatTemplate:
    """A compiled template.

    Args:
        sources: template texts by name: "default", and "tool_use" where tools have one of their own.
        special_tokens: given to the template under their names.
        origin: where the templates come from, for messages.

    Raises:
        CheckpointError: a template is no valid Jinja.
    """

    def __init__(self, sources: Mapping[str, str], special_tokens: SpecialTokens, origin: str) -> None:
        self._special_tokens = special_tokens
        self._origin = origin
        environment = _environment()
        try:
            self._templates = {name: environment.from_string(source) for name, source in sources.items()}
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"{origin} is no chat template: line {error.lineno}: {error.message}"
            ) from error

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """Read a checkpoint's template: chat_template.jinja, or else tokenizer_config.json.

        Raises:
            UsageError: there is none.
            CheckpointError: it cannot be read.
        """
        source = LocalSource(folder)
        config = read_tokenizer_config(source)
        special_tokens = SpecialTokens.of_config(config)
        if TEMPLATE_FILE in source.list_files():
            origin = f"{folder / TEMPLATE_FILE}"
            try:
                text = source.read(TEMPLATE_FILE, MAX_TEMPLATE_BYTES).decode("utf-8")
            except UnicodeDecodeError as error:
                raise CheckpointError(f"{origin} is no UTF-8 at byte {error.start}") from error
            return cls({DEFAULT: text}, special_tokens, origin)
        origin = f"{folder / CONFIG_FILE}"
        sources = _sources_of_config(config.get("chat_template"), origin)
        if not sources:
            raise UsageError(
                f"{folder} has no chat template ({TEMPLATE_FILE}, or chat_template in {CONFIG_FILE})",
                "Send a plain prompt instead of messages.",
            )
        return cls(sources, special_tokens, origin)

    def render(
        self,
        messages: Sequence[Json],
        tools: Sequence[Json] | None = None,
        add_generation_prompt: bool = True,
        variables: Json | None = None,
    ) -> str:
        """Make the prompt's text; encode it with `Tokenizer.encode_rendered`.

        Args:
            messages: JSON objects with `role` and `content`, and whatever else the template reads. Fields
                that are null count as missing.
            tools: JSON schemas of the tools, None for none.
            add_generation_prompt: end with the beginning of the assistant's answer.
            variables: further names that the template reads, like `enable_thinking`.

        Raises:
            UsageError: the template refuses these messages, with its reason.
        """
        template = self._templates.get(WITH_TOOLS) if tools is not None else None
        template = template or self._templates.get(DEFAULT)
        if template is None:
            raise UsageError(
                f"{self._origin} has templates {sorted(self._templates)} and none for this request"
            )
        names = {**dict(self._special_tokens.by_name), **(variables or {})}
        names |= {
            "messages": [_prepared(message) for message in messages],
            "tools": tools,
            "documents": names.get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return template.render(names)
        except REFUSALS as error:
            raise UsageError(f"the chat template refuses these messages: {error}") from error


def _sources_of_config(value: object, origin: str) -> dict[str, str]:
    """Templates of tokenizer_config.json: a text, or a list of objects with `name` and `template`."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    sources: dict[str, str] = {}
    for entry in value if isinstance(value, list) else [value]:
        name, text = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(text, str):
            raise CheckpointError(f"{origin}: chat_template is neither a text nor a list of named templates")
        sources[name] = text
    return sources


def _prepared(message: Json) -> dict[str, Any]:
    """A message without null fields, its reasoning under the names that templates read."""
    present = {name: value for name, value in message.items() if value is not None}
    reasoning = next((present[name] for name in REASONING_FIELDS if name in present), None)
    if reasoning is None:
        return present
    return {"thinking": reasoning, **present, "reasoning_content": reasoning}


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}...{% endgeneration %}`` marks the assistant's text for training; here it is just
    text."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter; templates name these arguments."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
