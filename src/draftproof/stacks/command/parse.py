"""Reads a pasted launch command, or only its options, into a `Command`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.errors import UsageError
from draftproof.stacks.command.command import Command, GivenFlag, Variable
from draftproof.stacks.command.programs import Start, find_start
from draftproof.stacks.command.words import Word, shown, split_words
from draftproof.stacks.stack import StackKind

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_SET_VARIABLES = frozenset(("export", "env", "declare", "set"))
_BESIDE = frozenset(
    (
        "cd",
        "source",
        ".",
        "pip",
        "pip3",
        "uv",
        "conda",
        "echo",
        "mkdir",
        "ulimit",
        "unset",
        "module",
        "sleep",
        "nvidia-smi",
        "git",
        "huggingface-cli",
        "hf",
        "apt",
        "apt-get",
    )
)
"""Commands that people paste along and that start no server."""
MAX_SHELLS_DEEP = 3


def parse_command(text: str) -> Command:
    """A launch command as data.

    Accepts what people paste: variables in front, `export` lines, wrappers, `docker run ... IMAGE ...`,
    `bash -c "..."`, continued lines, comments, redirections, a JSON list of words, or only the options.

    Raises:
        UsageError: it is empty, holds two servers or none, cannot be split into words, or one of the server's
            words needs a shell to know its value.
    """
    if not text.strip():
        raise UsageError("the command is empty; give the launch command, or only its options")
    return _parse(_json_words(text) or split_words(text), 0)


def _json_words(text: str) -> tuple[Word, ...] | None:
    """The words of a JSON list such as compose files and manifests hold; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the command begins with [ and is no JSON list of words: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise UsageError("the command is a JSON list of something else than words")
    return tuple(Word(entry, 1, is_plain=False) for entry in listed)


@dataclass(frozen=True)
class _Simple:
    """One simple command between two operators, with the variables that hold for it."""

    variables: tuple[Variable, ...]
    words: tuple[Word, ...]


def _parse(words: Sequence[Word], depth: int) -> Command:
    started: list[tuple[_Simple, Start]] = []
    exported: tuple[Variable, ...] = ()
    unknown: list[str] = []
    for segment in _segments(words):
        simple = _simple(_put_in(segment, exported), exported)
        if not simple.words:
            exported = simple.variables
            continue
        start = find_start(simple.words)
        if start is not None:
            started.append((simple, start))
        elif simple.words[0].text not in _BESIDE:
            unknown.append(simple.words[0].text)
    if len(started) > 1:
        raise UsageError(f"the command starts {len(started)} servers; give one of them")
    if not started:
        named = f" ({', '.join(map(shown, unknown[:3]))})" if unknown else ""
        raise UsageError(
            f"the command{named} starts no server that is known here",
            "Give `python -m sglang.launch_server ...`, `vllm serve ...`, or only the options",
        )
    return _command(*started[0], depth)


def _segments(words: Sequence[Word]) -> list[list[Word]]:
    """Simple commands. Redirections are left out, and so is everything after a pipe."""
    segments: list[list[Word]] = [[]]
    index = 0
    is_piped = False
    while index < len(words):
        word = words[index]
        following = words[index + 1] if index + 1 < len(words) else None
        if not word.is_operator:
            if not is_piped:
                segments[-1].append(word)
        elif word.text == "\n" and following is not None and following.text.startswith("-"):
            pass  # Options one a line, without backslashes: no shell has a command that begins with a dash.
        elif word.text.startswith(("<", ">")) or word.text == "&>":
            if segments[-1] and segments[-1][-1].text in ("1", "2") and segments[-1][-1].is_plain:
                segments[-1].pop()
            index += 1
        elif word.text in ("|", "|&"):
            is_piped = True
        elif word.text in ("\n", ";", "&", "&&", "||"):
            segments.append([])
            is_piped = False
        else:
            raise UsageError(
                f"line {word.line} of the command has {shown(word.text)!r}, which is not followed here; "
                "quote it or leave it out"
            )
        index += 1
    return [segment for segment in segments if segment]


def _put_in(words: Sequence[Word], variables: Sequence[Variable]) -> tuple[Word, ...]:
    """Words with the variables that the pasted text itself has set."""
    values = {f"${entry.name}": entry.value for entry in variables}
    done: list[Word] = []
    for word in words:
        known = [name for name in word.unexpanded if name in values]
        text = word.text
        for name in known:
            text = text.replace("${" + name[1:] + "}", values[name]).replace(name, values[name])
        left = tuple(name for name in word.unexpanded if name not in values)
        done.append(replace(word, text=text, unexpanded=left))
    return tuple(done)


def _simple(words: Sequence[Word], exported: tuple[Variable, ...]) -> _Simple:
    variables = list(exported)
    index = 0
    while index < len(words):
        match = _ASSIGNMENT.fullmatch(words[index].text)
        if match is not None:
            variables.append(Variable(match.group(1), match.group(2)))
        elif words[index].text not in _SET_VARIABLES:
            break
        index += 1
    return _Simple(tuple(variables), tuple(words[index:]))


def _command(simple: _Simple, start: Start, depth: int) -> Command:
    inside = tuple(
        Variable(match.group(1), match.group(2))
        for word in start.variables
        if (match := _ASSIGNMENT.fullmatch(word.text)) is not None
    )
    environment = (*simple.variables, *inside)
    if start.inner:
        if depth >= MAX_SHELLS_DEEP:
            raise UsageError("the command hides in too many shells; give the server's own command")
        inner = _parse(split_words(start.inner), depth + 1)
        return replace(
            inner,
            environment=(*environment, *inner.environment),
            program=(*start.program, *inner.program) if not inner.program else inner.program,
        )
    flags, positionals = _flags(start.arguments)
    return Command(environment, start.program, flags, positionals, start.stack)


def _flags(words: Sequence[Word]) -> tuple[tuple[GivenFlag, ...], tuple[str, ...]]:
    flags: list[GivenFlag] = []
    positionals: list[str] = []
    ended = False
    for position, word in enumerate(words):
        if word.unexpanded:
            raise UsageError(
                f"the command leaves {shown(word.unexpanded[0])} to the shell, and its value is not in it; "
                "write the value"
            )
        if ended:
            positionals.append(word.text)
        elif word.text == "--":
            ended = True
        elif _is_flag(word):
            name, equals, value = _split_flag(word.text)
            flags.append(GivenFlag(name, (value,) if equals else (), position, attached=bool(equals)))
        elif flags:
            flags[-1] = replace(flags[-1], values=(*flags[-1].values, word.text))
        else:
            positionals.append(word.text)
    return tuple(flags), tuple(positionals)


def _is_flag(word: Word) -> bool:
    text = word.text
    if not text.startswith("-") or text == "-" or _NUMBER.fullmatch(text) or " " in text.partition("=")[0]:
        return False
    if not re.match(r"--?[A-Za-z0-9]", text):
        raise UsageError(f"{shown(text)!r} in the command is no option")
    return True


def _split_flag(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    return name, equals, value


def options_only(command: Command, stack: StackKind) -> Command:
    """A command that was given as bare options, as one for a stack; any other command stays as it is."""
    return replace(command, stack=stack) if command.stack is None else command
