"""Regular expressions of evaluated code, on inputs of bounded length."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from draftproof.stacks.evaluation.unknowns import Unknown, Value, contains_unknown
from draftproof.stacks.evaluation.values import Arguments, Implementation, NativeFunction

if TYPE_CHECKING:
    from draftproof.stacks.evaluation.run import Run

_SEARCHES = ("match", "search", "fullmatch", "findall", "split")
_LONGEST_PATTERN = 1000


def pattern_module() -> dict[str, Value]:
    """What `re` offers."""
    names: dict[str, Value] = {
        flag: getattr(re, flag)
        for flag in ("I", "IGNORECASE", "M", "MULTILINE", "S", "DOTALL", "X", "VERBOSE", "A")
    }
    for name in (*_SEARCHES, "compile", "sub", "subn", "escape", "finditer"):
        names[name] = NativeFunction(f"re.{name}", _module_function(name))
    names["Pattern"] = re.Pattern
    names["Match"] = re.Match
    return names


def file_pattern_module() -> dict[str, Value]:
    """What `fnmatch` offers."""
    return {
        name: NativeFunction(f"fnmatch.{name}", _file_function(name))
        for name in ("fnmatch", "fnmatchcase", "filter", "translate")
    }


def pattern_method(pattern: re.Pattern[str], name: str) -> Value:
    """A method of a compiled pattern."""

    def run_method(run: Run, arguments: Arguments) -> Value:
        given = Arguments((pattern, *arguments.positional), arguments.keywords, arguments.place)
        return _module_function(name)(run, given)

    return NativeFunction(name, run_method)


def _module_function(name: str) -> Implementation:
    def carry_out(run: Run, arguments: Arguments) -> Value:
        positional = list(arguments.positional)
        place = arguments.place
        called = f"re.{name}({', '.join(run.shown(item) for item in positional)})"
        if any(contains_unknown(item) for item in (*positional, *arguments.keywords.values())):
            return Unknown(called, place)
        for position, item in enumerate(positional):
            is_pattern = position == 0 and isinstance(item, str)
            limit = _LONGEST_PATTERN if is_pattern and name != "escape" else run.settings.pattern_input
            if isinstance(item, (str, bytes)) and len(item) > limit:
                raise run.refused(f"a regular expression on {len(item)} characters", place)
        if name in ("sub", "subn") and len(positional) > 1 and not isinstance(positional[1], str):
            positional[1] = _replacement(run, positional[1], arguments)
        if isinstance(positional[0], re.Pattern) and name != "compile":
            pattern, *rest = positional
            result = run.native(
                lambda: getattr(pattern, name)(*rest, **arguments.keywords), place, lambda: called
            )
        else:
            result = run.native(
                lambda: getattr(re, name)(*positional, **arguments.keywords), place, lambda: called
            )
        if name == "finditer" and not isinstance(result, Unknown):
            return iter(list(result))
        if isinstance(result, str):
            run.require_size(len(result), place)
        return result

    return carry_out


def _replacement(run: Run, function: Value, arguments: Arguments) -> Value:
    def replace(match: re.Match[str]) -> str:
        text = run.call(function, (match,), {}, arguments.place)
        if isinstance(text, str):
            return text
        raise run.refused("an unknown replacement in a regular expression", arguments.place)

    return replace


def _file_function(name: str) -> Implementation:
    def carry_out(run: Run, arguments: Arguments) -> Value:
        positional = arguments.positional
        called = f"fnmatch.{name}({', '.join(run.shown(item) for item in positional)})"
        if any(contains_unknown(item) for item in positional):
            return Unknown(called, arguments.place)
        for item in positional:
            if isinstance(item, str) and len(item) > run.settings.pattern_input:
                raise run.refused(f"a file pattern on {len(item)} characters", arguments.place)
        function = getattr(fnmatch, "fnmatchcase" if name == "fnmatch" else name)
        return run.native(lambda: function(*positional), arguments.place, lambda: called)

    return carry_out
