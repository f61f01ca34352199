"""Splits a pasted command line into words, as a POSIX shell would, and refuses what it cannot see through.

Nothing is executed and nothing is looked up: no variable of this machine is put in, since the command is
meant for another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from draftproof.errors import UsageError

MAX_CHARACTERS = 100_000
MAX_WORDS = 4_000
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_OPERATORS = frozenset(";&|<>()")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


@dataclass(frozen=True)
class Word:
    """One word of a command line.

    Attributes:
        text: without quotes and escapes.
        line: where it starts, from 1.
        unexpanded: what the shell would have replaced and nobody here knows: "$MODEL", "$(...)".
        is_operator: ";", "&&", "|", ">", ... or "\\n" between two commands, unquoted.
        is_plain: no part of it was quoted.
    """

    text: str
    line: int
    unexpanded: tuple[str, ...] = ()
    is_operator: bool = False
    is_plain: bool = True


def shown(text: str) -> str:
    """A piece of a command for a message: on one line and short."""
    plain = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return plain if len(plain) <= 60 else f"{plain[:57]}..."


def split_words(text: str) -> tuple[Word, ...]:
    """The words and operators of a command line.

    Raises:
        UsageError: a quote that is not closed, a typographic dash or quote, a control character, a backslash
            with a space after it, or too much text.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"the command has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    for character in text:
        if character < " " and character not in "\n\r\t":
            raise UsageError(f"the command holds the control character {character!r}")
    words = _Splitter(text.replace("\r\n", "\n").replace("\r", "\n")).run()
    if len(words) > MAX_WORDS:
        raise UsageError(f"the command has {len(words)} words; at most {MAX_WORDS} are read")
    return tuple(words)


@dataclass
class _Splitter:
    text: str
    index: int = 0
    line: int = 1
    words: list[Word] = field(default_factory=list)

    def run(self) -> list[Word]:
        while self.index < len(self.text):
            character = self.text[self.index]
            if character == "\n":
                self.words.append(Word("\n", self.line, is_operator=True))
                self._advance(1)
            elif character.isspace() or self._is_continuation():
                self._advance(2 if character == "\\" else 1)
            elif character == "#":
                end = self.text.find("\n", self.index)
                self._advance((end if end >= 0 else len(self.text)) - self.index)
            elif character in _OPERATORS:
                self._operator()
            else:
                self._word()
        return self.words

    def _advance(self, count: int) -> str:
        taken = self.text[self.index : self.index + count]
        self.line += taken.count("\n")
        self.index += count
        return taken

    def _is_continuation(self) -> bool:
        if self.text[self.index] != "\\":
            return False
        rest = self.text[self.index + 1 :].partition("\n")[0]
        if rest and not rest.strip():
            raise UsageError(
                f"line {self.line} of the command ends with a space after the backslash, where a shell "
                "ends the command; remove the space"
            )
        return not rest

    def _operator(self) -> None:
        start = self.index
        while self.index < len(self.text) and self.text[self.index] in _OPERATORS:
            self.index += 1
        self.words.append(Word(self.text[start : self.index], self.line, is_operator=True))

    def _word(self) -> None:
        line = self.line
        parts: list[str] = []
        unexpanded: list[str] = []
        is_plain = True
        while self.index < len(self.text):
            character = self.text[self.index]
            if character.isspace() or character in _OPERATORS:
                break
            if character == "\\":
                if self._is_continuation():
                    self._advance(2)
                    continue
                self._advance(1)
                parts.append(self._advance(1))
                is_plain = False
            elif character == "'":
                parts.append(self._single_quoted())
                is_plain = False
            elif character == '"':
                parts.append(self._double_quoted(unexpanded))
                is_plain = False
            elif character in "$`":
                parts.append(self._replaced_by_the_shell(unexpanded))
            else:
                self._require_plain(character)
                parts.append(self._advance(1))
        self.words.append(Word("".join(parts), line, tuple(unexpanded), is_plain=is_plain))

    def _require_plain(self, character: str) -> None:
        if character in _QUOTES:
            raise UsageError(
                f"line {self.line} of the command has the typographic quote {character}; type ' or \""
            )
        at_start = self.text[self.index - 1 : self.index].strip() == ""
        if at_start and character in _DASHES:
            raise UsageError(
                f"line {self.line} of the command has the dash {character} where options begin "
                "with - or --; retype it"
            )

    def _single_quoted(self) -> str:
        end = self.text.find("'", self.index + 1)
        if end < 0:
            raise UsageError(f"a single quote opened on line {self.line} of the command is not closed")
        return self._advance(end + 1 - self.index)[1:-1]

    def _double_quoted(self, unexpanded: list[str]) -> str:
        opened = self.line
        self._advance(1)
        parts: list[str] = []
        while self.index < len(self.text):
            character = self.text[self.index]
            following = self.text[self.index + 1 : self.index + 2]
            if character == '"':
                self._advance(1)
                return "".join(parts)
            if character == "\\" and following and following in '"\\$`\n':
                taken = self._advance(2)[1]
                parts.append("" if taken == "\n" else taken)
            elif character in "$`":
                parts.append(self._replaced_by_the_shell(unexpanded))
            else:
                parts.append(self._advance(1))
        raise UsageError(f"a double quote opened on line {opened} of the command is not closed")

    def _replaced_by_the_shell(self, unexpanded: list[str]) -> str:
        match = _VARIABLE.match(self.text, self.index)
        if match is not None:
            taken = self._advance(len(match.group()))
            unexpanded.append(f"${match.group(1) or match.group(2)}")
            return taken
        if self.text[self.index] == "`" or self.text.startswith("$(", self.index):
            closing = "`" if self.text[self.index] == "`" else ")"
            end = self.text.find(closing, self.index + 1)
            taken = self._advance((end + 1 if end >= 0 else len(self.text)) - self.index)
            unexpanded.append(taken)
            return taken
        taken = self._advance(1)
        if self.text[self.index : self.index + 1] in ("{", "?", "@", "*", "$", "!"):
            unexpanded.append(taken + self.text[self.index])
        return taken
