"""What the user asks for with `--stack`: an installed stack, an environment, a tree, a wheel, a release."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from packaging.version import InvalidVersion, Version

from draftproof.errors import UsageError
from draftproof.stacks.stack import StackKind

FORMS = "sglang, vllm, native, sglang==0.5.12, PATH, or sglang@PATH"
"""Valid forms, for messages. PATH is an environment, a source tree or a wheel file."""

_NAMES = {kind.value: kind for kind in StackKind}


@dataclass(frozen=True)
class StackRequest:
    """One stack as it was asked for.

    Attributes:
        text: as typed.
        kind: which stack; None when a path was given that has to show it.
        release: the version that is to be read from the package index; None for anything else.
        path: environment, tree or wheel file; None for the installed stack or a release.
    """

    text: str
    kind: StackKind | None = None
    release: str | None = None
    path: Path | None = None


def parse_requests(text: str) -> tuple[StackRequest, ...]:
    """The stacks of one `--stack` value, in order, each once.

    Args:
        text: one request or several with commas between them.

    Raises:
        UsageError: a part is none of the forms; the message names the nearest one.
    """
    if "," in text and Path(text).expanduser().exists():
        return (parse_request(text),)
    requests = (parse_request(part.strip()) for part in text.split(","))
    return tuple(dict.fromkeys(requests))


def parse_request(text: str) -> StackRequest:
    """One stack; errors as `parse_requests`."""
    if not text:
        raise UsageError("--stack has an empty part", f"Give {FORMS}.")
    name, separator, path = text.partition("@")
    if separator and name.lower() in _NAMES:
        return _at_path(text, name, path)
    if _looks_like_path(text):
        return StackRequest(text, path=Path(text).expanduser())
    name, separator, version = text.partition("==")
    kind = _NAMES.get(name.strip().lower())
    if kind is None:
        raise UsageError(f"--stack {text}: no stack is called {name!r}", _remedy(name, separator + version))
    if not separator:
        return StackRequest(text, kind)
    if kind is StackKind.NATIVE:
        raise UsageError(f"--stack {text}: our own engine has only the version that runs", "Write: native.")
    return StackRequest(text, kind, release=_exact(text, kind, version.strip()))


def _at_path(text: str, name: str, path: str) -> StackRequest:
    kind = _NAMES[name.lower()]
    if kind is StackKind.NATIVE:
        raise UsageError(f"--stack {text}: our own engine is not looked for at a path", "Write: native.")
    if not path:
        raise UsageError(f"--stack {text}: the path is missing", f"Write: {name}@PATH.")
    return StackRequest(text, kind, path=Path(path).expanduser())


def _looks_like_path(text: str) -> bool:
    return "/" in text or text.startswith(("~", ".")) or text.endswith(".whl")


def _exact(text: str, kind: StackKind, version: str) -> str:
    """The version in its normal form."""
    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise UsageError(
            f"--stack {text}: {version!r} is no exact version",
            f"Write for example: {kind.value}=={_example(kind)}.",
        ) from error


def _example(kind: StackKind) -> str:
    return "0.33.0" if kind is StackKind.VLLM else "0.5.12"


def _remedy(name: str, rest: str) -> str:
    """The form that was probably meant, else all of them."""
    for sign in (">=", "<=", "~=", "!=", ">", "<", "=", ":", " "):
        before, found, after = name.partition(sign)
        if found and before.strip().lower() in _NAMES:
            kind = _NAMES[before.strip().lower()]
            return (
                f"A release is named by its exact version: {kind.value}=={after.strip() or _example(kind)}."
            )
    if Path(name).exists():
        return f"For the file or folder of that name write ./{name}; otherwise give {FORMS}."
    close = get_close_matches(name.lower(), _NAMES, n=1)
    return f"Did you mean {close[0]}{rest}?" if close else f"Give {FORMS}."
