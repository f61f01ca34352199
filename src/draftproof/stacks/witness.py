"""Asks an installed stack's own argument parser, in a process of its own, and compares it with the source.

The option table is read from the source without running it. Where the stack is installed and its Python runs,
its parser is the stronger witness: it is asked what options it has and whether it takes the command, and
every difference is a finding.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchFinding, OptionTable, Ruling
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.stack import Stack
from draftproof.stacks.witness_program import MARKER, witness_program

TIMEOUT = 90.0
"""Seconds; importing a stack with its dependencies takes up to half a minute from a cold disk."""
MOST_OUTPUT = 8 << 20
_NAMED = 6
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME")


@dataclass(frozen=True)
class ParserAnswer:
    """What the parser said.

    Attributes:
        choices: the values that it allows, by each name of each option; None for any.
        accepted: whether it takes the command; None when it was not asked about one.
        message: why it does not.
    """

    choices: dict[str, tuple[str, ...] | None]
    accepted: bool | None = None
    message: str = ""


def ask_parser(
    stack: Stack, command: Command | None = None, timeout: float = TIMEOUT
) -> Reading[ParserAnswer]:
    """What the installed stack's parser says. Nothing is imported into this process.

    Args:
        stack: where it is installed.
        command: the command that the parser is asked about; None to ask for its options only.
        timeout: seconds.
    """
    program = witness_program(stack.kind)
    if program is None:
        return not_understood(f"{stack.label} has no argument parser that can be asked")
    if stack.python is None:
        return not_understood(
            f"{stack.label} is not installed here, so its own argument parser was not asked"
        )
    given = None if command is None else list(command.arguments)
    words = [str(stack.python), "-c", program, json.dumps(given)]
    try:
        output, errors, status = _run(words, timeout)
    except subprocess.TimeoutExpired:
        return not_understood(f"the argument parser of {stack.label} gave no answer within {timeout:g} s")
    except OSError as error:
        return not_understood(f"{stack.python} cannot be run: {error.strerror or error}")
    return _answer(stack, output, errors, status)


def _run(words: list[str], timeout: float) -> tuple[str, str, int]:
    """Runs a program in its own process group, so that what it started ends with it."""
    variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    variables |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
        cwd=Path(os.sep),
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return output[-MOST_OUTPUT:], errors[-MOST_OUTPUT:], process.returncode


def _answer(stack: Stack, output: str, errors: str, status: int) -> Reading[ParserAnswer]:
    line = next((line for line in reversed(output.splitlines()) if line.startswith(MARKER)), None)
    if line is None:
        last = next(
            (line.strip() for line in reversed(errors.splitlines()) if line.strip()), "it said nothing"
        )
        return not_understood(
            f"the argument parser of {stack.label} could not be asked (exit status {status}: {last[:200]})"
        )
    try:
        answer = _parsed(json.loads(line[len(MARKER) :]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return not_understood(
            f"the argument parser of {stack.label} gave an answer that makes no sense: {error}"
        )
    return found(answer, f"{stack.python} was asked: {len(answer.choices)} names of options")


def _parsed(answer: dict[str, Any]) -> ParserAnswer:
    choices: dict[str, tuple[str, ...] | None] = {}
    for option in answer["options"]:
        values = option["choices"]
        for name in option["names"]:
            choices[str(name)] = None if values is None else tuple(str(value) for value in values)
    return ParserAnswer(choices, answer["accepted"], str(answer["message"]))


def parser_findings(answer: Reading[ParserAnswer], table: OptionTable) -> tuple[LaunchFinding, ...]:
    """Where the parser and the source agree or differ; nothing when the parser could not be asked.

    Args:
        answer: of the parser, asked about the command.
        table: the options as the source declares them. Choices that the source computes are not in it, so
            only those that are in it are compared.
    """
    said = answer.value
    if said is None:
        return ()
    findings = [_acceptance(said)]
    here = {name: option for option in table.options for name in (option.name, *option.aliases)}
    only_parser = sorted(set(said.choices) - set(here) - {"-h", "--help"})
    only_source = sorted(set(here) - set(said.choices))
    other_choices = sorted(
        name
        for name, option in here.items()
        if name in said.choices and option.choices and set(said.choices[name] or ()) != set(option.choices)
    )
    for names, sentence in (
        (only_parser, "the parser has options that were not found in the source"),
        (only_source, "the source declares options that the parser does not have"),
        (other_choices, "the parser allows other values than the source was read to allow"),
    ):
        if names:
            findings.append(_difference(sentence, names))
    return tuple(findings)


_CLAIM = "The installed stack's own argument parser takes the command."
_EXPECTED = "a parser that takes the command, with the options that the source declares"


def _acceptance(said: ParserAnswer) -> LaunchFinding:
    if said.accepted is False:
        message = said.message or "it gives no reason"
        observed, ruling = f"the parser refuses the command: {message}", Ruling.BREAKS
    else:
        observed, ruling = "the parser takes the command", Ruling.HOLDS
    return LaunchFinding("parser-agrees", "", ruling, _CLAIM, _EXPECTED, observed)


def _difference(sentence: str, names: list[str]) -> LaunchFinding:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    observed = f"{sentence}: {', '.join(names[:_NAMED])}{more}"
    return LaunchFinding("parser-agrees", "", Ruling.WARNS, _CLAIM, _EXPECTED, observed)
