"""What a command of draftproof makes of its options: its own function, carried out on them.

The function is followed up to where it would start the engine, so every check that it makes on the way (one
option by itself or several together) is made here, by the same lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from draftproof.stacks.evaluation import Evaluator, Given, Instance, RaisedError, Unknown, single
from draftproof.stacks.native.given_words import COMMAND_LINE, ENVIRONMENT, GivenWords
from draftproof.stacks.native.options import DeclaredCommand
from draftproof.stacks.native.own_source import GENERATE, SERVE
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

OWN = "native"
_USAGE = "UsageError"


@dataclass(frozen=True)
class EngineInForce:
    """The engine that a command leads to.

    Attributes:
        values: fields of its config; enumerations as their values. Empty when there is no engine.
        refusal: the error that stops the start; None when there is none.
        lost: what was not understood; empty when the function was followed to its end.
        place: where the config is made, or where the way was lost.
        starts_other: the command is about another stack.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    refusal: RaisedError | None = None
    lost: str = ""
    place: Place | None = None
    starts_other: bool = False


def carried_out(tree: SourceTree, command: DeclaredCommand, given: GivenWords) -> EngineInForce:
    """Follows the command's function with the values of its options.

    Args:
        tree: the source.
        command: which function.
        given: words whose values are all accepted by themselves.
    """
    stack = given.of("stack")
    if stack is not None and stack.value != OWN:
        return EngineInForce(starts_other=True, place=command.place)
    evaluator = _evaluator(tree)
    values = {
        **dict(zip(command.arguments, given.positionals, strict=False)),
        **{name: value for name, value in given.values.items() if name not in _ABOUT_THE_CALL},
    }
    positional = (_context(command, given),) if command.name == SERVE else ()
    outcome = single(evaluator.call(command.place.file, command.name, *positional, **values))
    if outcome is None:
        return EngineInForce(
            lost=f"{command.name} could not be followed with these options", place=command.place
        )
    if outcome.raised is not None:
        if _USAGE in outcome.raised.bases:
            return EngineInForce(refusal=outcome.raised, place=outcome.raised.place)
        return EngineInForce(lost=f"{command.name} ended with {outcome.raised}", place=outcome.raised.place)
    engine = outcome.returned
    if not isinstance(engine, Instance):
        return EngineInForce(lost=f"{command.name} gave no engine", place=command.place)
    return EngineInForce(
        {name: _plain(value) for name, value in engine.attributes.items()}, place=command.place
    )


_ABOUT_THE_CALL = ("dry_run", "as_json", "config", "stack")
_ENDS: Mapping[str, Any] = {
    "draftproof.cli.native_server.serve_natively": lambda argument, engine, server: engine,
    f"draftproof.cli.{GENERATE}._run": lambda argument, given, config, *others: config,
    "draftproof.runtime.sampling.fresh_seed": lambda: 0,
    "draftproof.cli.brought_options.json_object": lambda option, text: (
        None if text is None else json.loads(text)
    ),
}
"""Where the following ends: nothing is loaded, and nothing is served."""


@lru_cache(maxsize=4)
def _evaluator(tree: SourceTree) -> Evaluator:
    """One for all questions about a tree: what it has read and compiled is kept."""
    return Evaluator(tree, substitutes=_ENDS)


def _context(command: DeclaredCommand, given: GivenWords) -> Given:
    """The command line's own account of what was given."""
    typed = {each.declared.parameter: each.source for each in given.words if each.declared is not None}
    words = {COMMAND_LINE: "COMMANDLINE", ENVIRONMENT: "ENVIRONMENT"}
    names = (*(each.parameter for each in command.options), *command.arguments)
    sources = {name: Given("source", {"name": words.get(typed.get(name, ""), "DEFAULT")}) for name in names}
    parameters = [
        Given("parameter", {"name": each.parameter, "opts": [each.option.name, *each.option.aliases]})
        for each in command.options
    ]
    return Given(
        "context",
        {"command": Given("command", {"params": parameters}), "params": dict.fromkeys(names)},
        methods={"get_parameter_source": lambda subject, name: sources.get(name)},
    )


def _plain(value: object) -> object:
    """Of an enumeration's member its value; None for what is not known."""
    if isinstance(value, Instance):
        return value.attributes.get("_value_")
    return None if isinstance(value, Unknown) else value
