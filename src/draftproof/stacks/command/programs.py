"""Finds the server among the words of a command: interpreters, wrappers, containers, shells in shells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.errors import UsageError
from draftproof.stacks.command.words import Word
from draftproof.stacks.stack import StackKind

MODULES = {
    "sglang.launch_server": StackKind.SGLANG,
    "sglang.srt.entrypoints.http_server": StackKind.SGLANG,
    "vllm.entrypoints.openai.api_server": StackKind.VLLM,
    "vllm.entrypoints.api_server": StackKind.VLLM,
}
"""Modules that are servers, as typed after `python -m`."""
SCRIPTS = {"sglang": StackKind.SGLANG, "vllm": StackKind.VLLM, "draftproof": StackKind.NATIVE}
"""Console scripts, each started as a server by its first word `serve`."""
STARTING_WORDS = {StackKind.NATIVE: ("serve", "generate")}
"""First words that run a model, where there are others than `serve`."""
SERVE_MODULES = {
    "vllm.entrypoints.cli.main": StackKind.VLLM,
    "vllm": StackKind.VLLM,
    "sglang.cli.main": StackKind.SGLANG,
    "sglang": StackKind.SGLANG,
    "draftproof": StackKind.NATIVE,
}
"""Modules that behave as the console script of their stack."""
CONTAINERS = ("docker", "podman", "nerdctl")
SHELLS = ("bash", "sh", "zsh", "dash")
_CONTAINER_SWITCHES = frozenset(
    (
        *("-d", "-i", "-t", "-it", "-ti", "-dit", "-itd", "-dt", "-di", "-td", "-P", "-q"),
        *("--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--read-only"),
        *("--no-healthcheck", "--oom-kill-disable", "--publish-all", "--sig-proxy", "--quiet"),
        "--disable-content-trust",
    )
)
"""Options of `docker run` that take no value; all others take one."""


@dataclass(frozen=True)
class Start:
    """Where a server's own words begin.

    Attributes:
        program: the words up to there.
        arguments: the words after it.
        stack: whose server it is; None when only options were given, or only a container's image.
        variables: NAME=VALUE words that a container gets by -e or --env.
        inner: a whole command line in one word, when the program is `bash -c "..."`; empty otherwise.
    """

    program: tuple[str, ...]
    arguments: tuple[Word, ...]
    stack: StackKind | None
    variables: tuple[Word, ...] = ()
    inner: str = ""


def find_start(words: Sequence[Word]) -> Start | None:
    """The start of a known server in one simple command; None when it starts none."""
    if not words:
        return None
    inner = _shell_line(words)
    if inner is not None:
        return inner
    if _name(words[0]) in CONTAINERS or (_name(words[0]) == "sudo" and _name(words[1:2]) in CONTAINERS):
        return _in_container(words)
    known = _known_server(words)
    if known is not None:
        return known
    return Start((), tuple(words), None) if words[0].text.startswith("-") else None


def _name(word: Word | Sequence[Word]) -> str:
    """Last part of a path: "vllm" of "/opt/venv/bin/vllm"."""
    if isinstance(word, Word):
        return word.text.rpartition("/")[2]
    return _name(word[0]) if word else ""


def _known_server(words: Sequence[Word]) -> Start | None:
    for index, word in enumerate(words):
        if word.text.startswith("-") and index == 0:
            return None
        following = words[index + 1].text if index + 1 < len(words) else ""
        after = words[index + 2].text if index + 2 < len(words) else ""
        if word.text == "-m" and following in MODULES:
            return _start(words, index + 2, MODULES[following])
        if word.text == "-m" and following in SERVE_MODULES and _starts(SERVE_MODULES[following], after):
            return _start(words, index + 3, SERVE_MODULES[following])
        if _name(word) in SCRIPTS and _starts(SCRIPTS[_name(word)], following):
            return _start(words, index + 2, SCRIPTS[_name(word)])
        script = _script_file(word.text)
        if script is not None and index > 0 and _name(words[index - 1]).startswith("python"):
            return _start(words, index + 1, script)
    return None


def _starts(stack: StackKind, word: str) -> bool:
    return word in STARTING_WORDS.get(stack, ("serve",))


def _script_file(path: str) -> StackKind | None:
    """The stack of a server started by its file: "python sglang/launch_server.py"."""
    if not path.endswith(".py"):
        return None
    dotted = path[: -len(".py")].replace("/", ".")
    return next((kind for module, kind in MODULES.items() if f".{dotted}".endswith(f".{module}")), None)


def _start(words: Sequence[Word], end: int, stack: StackKind) -> Start:
    return Start(tuple(word.text for word in words[:end]), tuple(words[end:]), stack)


def _shell_line(words: Sequence[Word]) -> Start | None:
    if _name(words[0]) not in SHELLS:
        return None
    for index, word in enumerate(words[1:], start=1):
        if word.text.startswith("-") and word.text.endswith("c") and index + 1 < len(words):
            program = tuple(entry.text for entry in words[: index + 1])
            return Start(program, (), None, inner=words[index + 1].text)
        if not word.text.startswith("-"):
            break
    return None


def _in_container(words: Sequence[Word]) -> Start:
    index = next((place for place, word in enumerate(words) if word.text == "run"), None)
    if index is None:
        raise UsageError(
            "a container command is read from `run` on, and there is none in it; "
            "give the server's own command"
        )
    variables: list[Word] = []
    index += 1
    while index < len(words) and words[index].text.startswith("-"):
        option, equals, attached = words[index].text.partition("=")
        takes_next = not equals and option not in _CONTAINER_SWITCHES
        value = words[index + 1] if takes_next and index + 1 < len(words) else None
        if option in ("-e", "--env"):
            variables.append(Word(attached, words[index].line) if equals else value or words[index])
        index += 2 if takes_next else 1
    if index >= len(words):
        raise UsageError("the container command names no image; give the server's own command")
    image, rest = words[index], words[index + 1 :]
    inside = find_start(rest)
    program = tuple(word.text for word in words[: index + 1])
    if inside is None:
        stack = _stack_of_image(image.text)
        return Start(program, tuple(rest), stack, tuple(variables))
    stack = inside.stack or _stack_of_image(image.text)
    return Start((*program, *inside.program), inside.arguments, stack, tuple(variables), inside.inner)


def _stack_of_image(image: str) -> StackKind | None:
    """Whose server an image's own entry point starts, by its name: "vllm/vllm-openai:v0.19.0"."""
    name = image.partition("@")[0]
    for kind in (StackKind.SGLANG, StackKind.VLLM):
        if kind.value in name:
            return kind
    return None
