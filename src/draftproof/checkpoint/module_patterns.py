"""Lists of modules in quantisation configs, matched the way their writers meant them.

Exporters write module names of their own model class, engines and disks use others: the same layer is
`model.layers.3`, `model.language_model.layers.3` or `language_model.layers.3`. A list entry is one of

* a name, which covers everything below it: `mtp.fc`, `model.layers.0.mlp`;
* a part of a name, which covers every module that contains it: `lm_head`, `mlp.gate`;
* a glob: `mtp*`, `*.self_attn.q_proj`. A star never continues a number: `mtp.layers.3*` is not layer 30;
* a regular expression, `re:` before it, matched from the beginning of the name.

A fused name stands for its members (`qkv_proj`), and members that are all listed stand for the fused name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_PATTERN_LENGTH = 512
MAX_NAME_LENGTH = 200
"""Longer names, or ones with longer numbers than eight digits, are matched by no expression."""
MAX_STARS = 3
"""Repeats of anything but digits in one expression: time grows with that power of the name's length."""

FUSED_MEMBERS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}

_PREFIXES = re.compile(r"(?:model\.|language_model\.)+")
_SPELLINGS = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")
_ROOTS = ("layers.", "mtp", "visual", "lm_head", "embed_tokens")
_GLOB = re.compile(r"[*?\[]")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_ONE_EXPERT = re.compile(r"experts\W*[\d\[(]")
_LONG_NUMBER = re.compile(r"\d{9}")
# Repeated groups and back references are where matching time explodes.
_EXPLOSIVE = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
_DIGIT_REPEAT = re.compile(r"(?:\\d|\[0-9\])[*+]")
_OPEN_END = re.compile(r"\.\*\$?$")


def canonical(module: str) -> str:
    """The name without any spelling of the trunk's prefix.

    `model.language_model.layers.3.mlp`, `language_model.model.layers.3.mlp` -> `layers.3.mlp`.
    """
    prefix = _PREFIXES.match(module)
    return (module[prefix.end() :] if prefix else module).removesuffix(".linear")


class ModulePatterns:
    """A list of modules.

    Args:
        patterns: the entries, as in the config file.
        regular_expressions: entries are regular expressions even without `re:` (GPTQ's rules).
    """

    def __init__(self, patterns: Iterable[str], regular_expressions: bool = False) -> None:
        self._names: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        self._beginnings: dict[int, dict[str, str]] = {}
        self._expressions: list[tuple[re.Pattern[str], str]] = []
        self._refused: list[str] = []
        self._tells_experts_apart = False
        self._remembered: dict[str, str | None] = {}
        for pattern in patterns:
            self._add(pattern, regular_expressions)

    @property
    def refused(self) -> tuple[str, ...]:
        """Entries that are not applied: no valid expression, or one that could take for ever."""
        return tuple(self._refused)

    def match(self, module: str) -> str | None:
        """The entry that covers a module; None when none does.

        Args:
            module: name on disk without `.weight`; fused experts by their whole name.
        """
        name = canonical(module)
        if not self._tells_experts_apart:
            # Experts of one layer share an answer: 512 times fewer questions.
            name = _EXPERT.sub(".experts.0.", name)
        if name not in self._remembered:
            self._remembered[name] = self._match(name)
        return self._remembered[name]

    def _match(self, name: str) -> str | None:
        for spelling in (name, *_unfused_block(name)):
            found = self._match_one(spelling)
            if found is not None:
                return found
        of_members = [self._match_one(member) for member in _members(name)]
        return of_members[0] if of_members and None not in of_members else None

    def _match_one(self, name: str) -> str | None:
        for ancestor in _ancestors(name):
            if ancestor in self._names:
                return self._names[ancestor]
        if self._parts:
            for part in _parts_of(name):
                if part in self._parts:
                    return self._parts[part]
        for length, beginnings in self._beginnings.items():
            pattern = beginnings.get(name[:length])
            if pattern is not None and not _continues_number(name, length):
                return pattern
        return self._match_expression(name)

    def _match_expression(self, name: str) -> str | None:
        if len(name) > MAX_NAME_LENGTH or _LONG_NUMBER.search(name):
            return None
        for expression, pattern in self._expressions:
            if any(expression.match(spelling) for spelling in _spellings(name)):
                return pattern
        return None

    def _add(self, pattern: str, regular_expressions: bool) -> None:
        if not 0 < len(pattern) <= MAX_PATTERN_LENGTH:
            self._refused.append(pattern)
        elif regular_expressions or pattern.startswith("re:"):
            self._add_expression(pattern.removeprefix("re:"), pattern)
        elif _GLOB.search(pattern):
            self._add_glob(pattern)
        else:
            self._add_name(pattern)
        if _ONE_EXPERT.search(pattern):
            self._tells_experts_apart = True

    def _add_expression(self, text: str, pattern: str) -> None:
        repeats = _DIGIT_REPEAT.sub("", _OPEN_END.sub("", text))
        stars = repeats.count("*") + repeats.count("+") + repeats.count("{")
        try:
            compiled = re.compile(text)
        except (re.error, RecursionError, OverflowError):
            self._refused.append(pattern)
            return
        if stars > MAX_STARS or _EXPLOSIVE.search(text):
            self._refused.append(pattern)
        else:
            self._expressions.append((compiled, pattern))

    def _add_glob(self, pattern: str) -> None:
        beginning = canonical(pattern).removesuffix("*")
        if pattern.endswith("*") and beginning and not _GLOB.search(beginning):
            self._beginnings.setdefault(len(beginning), {})[beginning] = pattern
            return
        self._add_expression(_glob_expression(pattern), pattern)

    def _add_name(self, pattern: str) -> None:
        name = canonical(pattern)
        outer, dot, last = name.rpartition(".")
        for spelled in (name, *(f"{outer}{dot}{member}" for member in FUSED_MEMBERS.get(last, ()))):
            if spelled.startswith(_ROOTS):
                self._names[spelled] = pattern
            else:
                self._parts[spelled] = pattern


def _ancestors(name: str) -> Iterator[str]:
    """The name and everything above it, longest first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _parts_of(name: str) -> Iterator[str]:
    """Every run of components: `a.b.c` -> a, a.b, a.b.c, b, b.c, c."""
    components = name.split(".")
    for start in range(len(components)):
        for end in range(start + 1, len(components) + 1):
            yield ".".join(components[start:end])


def _spellings(name: str) -> tuple[str, ...]:
    """Every name that the same module has in some model class; the head has only one."""
    return (name,) if name.startswith("mtp.") else tuple(prefix + name for prefix in _SPELLINGS)


def _unfused_block(name: str) -> Iterator[str]:
    """Fused down projections of experts, as exporters that list experts one by one call the first."""
    if name.endswith(".experts.down_proj"):
        yield f"{name.removesuffix('.down_proj')}.0.down_proj"


def _members(name: str) -> tuple[str, ...]:
    """The modules that are stored together under a fused name."""
    outer, _, last = name.rpartition(".")
    if outer.endswith(".experts"):
        outer += ".0"
    return tuple(f"{outer}.{member}" for member in FUSED_MEMBERS.get(last, ()))


def _continues_number(name: str, position: int) -> bool:
    """A star after a digit must not swallow further digits: layer 3 is not layer 30."""
    return name[position - 1 : position].isdigit() and name[position : position + 1].isdigit()


def _glob_expression(pattern: str) -> str:
    """A glob as a regular expression for the whole name, with the rule about numbers."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        end = pattern.find("]", position + 2)
        if character == "*":
            parts.append("(?![0-9]).*" if pattern[position - 1 : position].isdigit() else ".*")
        elif character == "?":
            parts.append(".")
        elif character == "[" and end > 0:
            choices = pattern[position + 1 : end].replace("\\", r"\\")
            parts.append(f"[^{choices[1:]}]" if choices.startswith("!") else f"[{choices}]")
            position = end
        else:
            parts.append(re.escape(character))
        position += 1
    return "".join(parts) + r"\Z"
