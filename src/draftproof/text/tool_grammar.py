"""Which calls of functions an answer may, must or must not hold, as a grammar.

Parameters come in the order of the schema, the required ones always. A strict function's values obey their
schemas; those of others have the right JSON type. Texts run up to their end tag, whatever is in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from draftproof.errors import UsageError
from draftproof.text.json_grammar import embedded_json, with_whitespace
from draftproof.text.output_rules import Grammar, GrammarKind
from draftproof.text.tool_calls import (
    CALL_BEGIN,
    CALL_END,
    FUNCTION_BEGIN,
    FUNCTION_END,
    PARAMETER_BEGIN,
    PARAMETER_END,
    Json,
    ToolFunction,
    resolved,
)

# The bracket that opens what follows belongs to the end of a value, so that an end tag inside a text is text.
_VALUE_END = f"\n{PARAMETER_END}\n<"
_PARAMETER, _FUNCTION_END = PARAMETER_BEGIN[1:], FUNCTION_END[1:]
_TEXT = "text"
_RULES = f"""
{_TEXT}[suffix={json.dumps(_VALUE_END)}]: /(?s:.*)/
free: "{_PARAMETER}" /[^<>\\n]{{1,128}}/ ">\\n" {_TEXT}
"""
_FREE_CONTENT = f"""
content[suffix="{CALL_BEGIN}"]: /(?s:.*)/
CONTENT: /(?s:.*)/ & ~/(?s:.*{CALL_BEGIN}.*)/
"""
_UNENFORCEABLE_OF_TEXTS = ("pattern", "format", "minLength", "maxLength")
_MOST_NESTED_SCHEMAS = 32


class ToolChoiceMode(Enum):
    """What a client wants of the functions."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True)
class ToolChoice:
    """What a client wants of the functions.

    Attributes:
        mode: whether calls may or must be.
        name: of the function that must be called, once, when the mode is NAMED.
    """

    mode: ToolChoiceMode = ToolChoiceMode.AUTO
    name: str = ""


def tool_call_grammar(
    functions: Sequence[ToolFunction],
    choice: ToolChoice | None = None,
    parallel: bool = True,
    form: Grammar | None = None,
) -> Grammar | None:
    """The grammar of an answer that may hold calls; None when nothing is to be enforced.

    Args:
        functions: that are offered.
        choice: whether calls may or must be; None leaves it to the model. With NONE what looks like a call is
            content.
        parallel: more than one call may be in an answer.
        form: of an answer without calls; None for free text.

    Raises:
        UsageError: the choice names a function that is not offered, a schema cannot be enforced, or the form
            cannot stand beside calls.
    """
    choice = choice or ToolChoice()
    if choice.mode is ToolChoiceMode.NONE or (choice.mode is ToolChoiceMode.AUTO and not functions):
        return form
    is_single = choice.mode is ToolChoiceMode.NAMED or not parallel
    calls = "call" if is_single else 'call ("\\n" call)*'
    if choice.mode is ToolChoiceMode.AUTO:
        if form is not None:
            return _grammar(f"{_form_rule(form)} | {calls}", CALL_BEGIN, functions, "")
        if parallel and not any(function.strict for function in functions):
            return None
        start = "(content call)* CONTENT" if parallel else "CONTENT | content call"
        return _grammar(start, "", functions, _FREE_CONTENT)
    called = functions
    if choice.mode is ToolChoiceMode.NAMED:
        called = [function for function in functions if function.name == choice.name]
        if not called:
            raise UsageError(
                f"tool_choice names function {choice.name[:200]!r}, which is not among the tools"
            )
    if not called:
        raise UsageError("tool_choice asks for a call, but there are no tools")
    return _grammar(calls, CALL_BEGIN, called, "")


def _form_rule(form: Grammar) -> str:
    """A form as part of a Lark grammar."""
    if form.kind in (GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT):
        return f"%json {embedded_json(form)}"
    raise UsageError(
        f"a {form.kind.value} cannot be enforced beside tools",
        "Ask for JSON, or set tool_choice to none.",
    )


def _grammar(start: str, call_begin: str, functions: Sequence[ToolFunction], more_rules: str) -> Grammar:
    rules = [f"start: {start}"]
    names = [f"f{number}" for number in range(len(functions))]
    begin, end = _literal(f"{call_begin}\n{FUNCTION_BEGIN}"), _literal(f"{_FUNCTION_END}\n{CALL_END}")
    rules.append(f"call: {begin} ({' | '.join(names)}) {end}")
    for name, function in zip(names, functions, strict=True):
        rules.extend(_function_rules(name, function))
    return Grammar(GrammarKind.LARK, "\n".join(rules) + _RULES + more_rules)


def _function_rules(rule: str, function: ToolFunction) -> Iterable[str]:
    """Rules of a function's name and parameters, up to the function's end."""
    begin = _literal(f"{function.name}>\n<")
    if not function.properties:
        # Without a schema anything may be given; with an empty one nothing.
        parameters = "" if "properties" in function.parameters else " free*"
        return [f"{rule}: {begin}{parameters}"]
    required = function.parameters.get("required")
    required = required if isinstance(required, list) else []
    rules, parts = [], []
    for number, (name, schema) in enumerate(function.properties.items()):
        if any(character in name for character in "<>\n"):
            raise UsageError(
                f"function {function.name}: parameter {name[:200]!r} cannot be written in a call"
            )
        part = f"{rule}_{number}"
        values = _Values(function, name).of(schema, _MOST_NESTED_SCHEMAS)
        value = _TEXT if _TEXT in values else " | ".join(dict.fromkeys(values))
        begins = _literal(f"{_PARAMETER}{name}>\n")
        rules.append(f"{part}: {begins} ({value})")
        parts.append(part if name in required else f"{part}?")
    return [f"{rule}: {begin} {' '.join(parts)}", *rules]


@dataclass(frozen=True)
class _Values:
    """What one parameter's value may be, with its end tag, as alternatives of a rule."""

    function: ToolFunction
    parameter: str

    def of(self, schema: object, depth: int) -> list[str]:
        """Alternatives of a schema."""
        schema = resolved(schema, self.function.parameters)
        if not isinstance(schema, Mapping) or depth == 0:
            return [_TEXT]
        if isinstance(schema.get("enum"), list):
            return [self._written(value) for value in schema["enum"]]
        if "const" in schema:
            return [self._written(schema["const"])]
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches and (keyword != "allOf" or len(branches) == 1):
                return [value for branch in branches for value in self.of(branch, depth - 1)]
        declared = schema.get("type")
        if isinstance(declared, list):
            return [value for name in declared for value in self.of({**schema, "type": name}, depth - 1)]
        if not isinstance(declared, str):
            return [_TEXT]
        if declared == "string":
            self._require_plain_text(schema)
            return [_TEXT]
        return [f"%json {with_whitespace(self._embedded(schema, declared))} {_literal(_VALUE_END)}"]

    def _written(self, value: object) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return _literal(text + _VALUE_END)

    def _embedded(self, schema: Json, declared: str) -> Json:
        if not self.function.strict:
            return {"type": declared}
        root = self.function.parameters
        definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
        return {**schema, **definitions}

    def _require_plain_text(self, schema: Json) -> None:
        found = [keyword for keyword in _UNENFORCEABLE_OF_TEXTS if keyword in schema]
        if found and self.function.strict:
            raise UsageError(
                f"strict function {self.function.name}: {found[0]!r} of parameter {self.parameter!r} "
                "cannot be enforced",
                "Leave it out, or do not ask for strict.",
            )


def _literal(text: str) -> str:
    """A text as a string of a Lark grammar."""
    return json.dumps(text)
