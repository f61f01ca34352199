"""Grammars of answers, compiled by llguidance for one tokenizer."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import llguidance
import numpy as np
from numpy.typing import NDArray

from draftproof.errors import UsageError
from draftproof.text.json_grammar import JSON_WHITESPACE
from draftproof.text.output_constraint import OutputConstraint, OutputVocabulary, Taken
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules
from draftproof.text.reasoning import REASONING_BEGIN, REASONING_END
from draftproof.text.tokenizer import Tokenizer
from draftproof.text.tool_calls import CALL_BEGIN, CALL_END

MOST_KEPT_GRAMMARS = 64
MOST_GRAMMAR_CHARACTERS = 1 << 20

MOST_ITEMS, MOST_LARK_ITEMS = 4000, 600
"""Ways to go on that a parser may keep open at one place. A schema with a thousand optional properties needs
so many; a Lark grammar can be ambiguous, and then time grows with their square: 60 ms a token at 600."""

TEXT_MARKERS = (CALL_BEGIN, CALL_END, REASONING_BEGIN, REASONING_END)
"""Tokens that are part of an answer's text, even where a tokenizer marks them as special."""


class GrammarCompiler:
    """Makes constraints; compiled grammars are kept, so that a schema is compiled once. Threads may share it.

    Args:
        tokenizer: of the checkpoint.
        end_token_ids: tokens that end an output; at the end of a grammar nothing else is allowed.
        vocabulary_size: width of the logits.
    """

    def __init__(self, tokenizer: Tokenizer, end_token_ids: Sequence[int], vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = OutputVocabulary(tokenizer, end_token_ids, vocabulary_size)
        self._kept: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        self._llguidance_tokenizer: llguidance.LLTokenizer | None = None
        self._preparing = threading.Lock()

    def constraint(self, rules: OutputRules) -> OutputConstraint | None:
        """A constraint for one output; None when the rules leave every token free.

        Raises:
            UsageError: see `check`.
        """
        grammar, thinking = rules.grammar, rules.thinking
        if grammar is None and (thinking is None or thinking.budget is None):
            return None
        matcher = None
        if grammar is not None:
            matcher = _Matcher(self._compiled(grammar).deep_copy(), partial(self._compile_again, grammar))
        return OutputConstraint(self._vocabulary, thinking, matcher)

    def check(self, rules: OutputRules) -> None:
        """Refuse rules that cannot be followed; takes milliseconds, seconds for very large schemas.

        Raises:
            UsageError: the grammar has a fault (it is named), allows nothing, or the tokenizer has no token
                that ends reasoning.
        """
        self.constraint(rules)

    def _compiled(self, grammar: Grammar) -> llguidance.LLMatcher:
        with self._lock:
            kept = self._kept.get(grammar)
            if kept is not None:
                self._kept.move_to_end(grammar)
                return kept
        compiled = self._compile(grammar)
        with self._lock:
            self._kept[grammar] = compiled
            while len(self._kept) > MOST_KEPT_GRAMMARS:
                self._kept.popitem(last=False)
        return compiled

    def _compile_again(self, grammar: Grammar) -> llguidance.LLMatcher:
        with self._lock:
            self._kept.pop(grammar, None)
        return self._compiled(grammar).deep_copy()

    def _compile(self, grammar: Grammar) -> llguidance.LLMatcher:
        if len(grammar.text) > MOST_GRAMMAR_CHARACTERS:
            raise UsageError(
                f"the {grammar.kind.value} has {len(grammar.text)} characters; "
                f"allowed: {MOST_GRAMMAR_CHARACTERS}"
            )
        limits = llguidance.LLParserLimits(
            max_items_in_row=MOST_LARK_ITEMS if grammar.kind is GrammarKind.LARK else MOST_ITEMS
        )
        self.prepare()
        assert self._llguidance_tokenizer is not None
        matcher = llguidance.LLMatcher(
            self._llguidance_tokenizer, _in_llguidance(grammar), log_level=0, limits=limits
        )
        allows_any = any(matcher.compute_logit_bias())
        if matcher.is_error():
            raise UsageError(f"the {grammar.kind.value} cannot be used: {_one_line(matcher.get_error())}")
        if not allows_any or (matcher.is_stopped() and not matcher.is_accepting()):
            raise UsageError(f"the {grammar.kind.value} allows no answer")
        return matcher

    def prepare(self) -> None:
        """Make the tables of the vocabulary now (two seconds for 250,000 tokens), not at the first grammar.

        Raises:
            UsageError: no token ends an output.
        """
        with self._preparing:
            if self._llguidance_tokenizer is not None:
                return
            ends = sorted(self._vocabulary.end_token_ids)
            if not ends:
                raise UsageError("the checkpoint names no token that ends an output, so no grammar can end")
            source = _TokenSource(self._tokenizer, self._vocabulary.pieces, ends[0])
            wrapper = llguidance.TokenizerWrapper(source)
            self._llguidance_tokenizer = llguidance.LLTokenizer(
                wrapper, n_vocab=self._vocabulary.size, eos_token=ends
            )


class _Matcher:
    """An `output_constraint.GrammarMatcher` by llguidance.

    Llguidance never leaves an error, copies share what they learned of the text, and drafts that are never
    committed may cause one: the place before it is then made again, from a new compilation.

    Args:
        matcher: at the grammar's beginning, of this output.
        compile_again: makes a matcher that shares nothing with it.
    """

    def __init__(
        self, matcher: llguidance.LLMatcher, compile_again: Callable[[], llguidance.LLMatcher]
    ) -> None:
        self._matcher = matcher
        self._compile_again = compile_again
        self._taken: list[int] = []

    @property
    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    def mask(self) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = np.frombuffer(self._matcher.compute_logit_bias(), dtype=np.uint8) != 0
        if self._matcher.is_error():
            # Llguidance then says that the answer may end; it need not be a whole one.
            self._make_again()
            return np.zeros_like(mask)
        return mask

    def take(self, token_id: int) -> Taken:
        if self._matcher.try_consume_tokens([token_id]) == 1:
            self._taken.append(token_id)
            return Taken.YES
        if not self._matcher.is_error():
            return Taken.NO
        self._make_again()
        return Taken.GAVE_UP

    def back(self, count: int) -> None:
        if count:
            self._matcher.rollback(count)
            del self._taken[-count:]

    def _make_again(self) -> None:
        self._matcher = self._compile_again()
        self._matcher.consume_tokens(self._taken)


class _TokenSource:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, pieces: Sequence[bytes], end_token_id: int) -> None:
        text_markers = {tokenizer.token_id(marker) for marker in TEXT_MARKERS}
        self._tokenizer = tokenizer
        self.tokens = pieces
        self.eos_token_id = end_token_id
        self.special_token_ids = sorted(tokenizer.special_ids - text_markers)

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode_rendered(text)


def _in_llguidance(grammar: Grammar) -> str:
    """A grammar as llguidance takes it.

    Raises:
        UsageError: it is not written as its kind says.
    """
    kind, text = grammar.kind, grammar.text
    if kind is GrammarKind.JSON_OBJECT:
        kind, text = GrammarKind.JSON_SCHEMA, '{"type": "object"}'
    if kind is GrammarKind.JSON_SCHEMA:
        try:
            return llguidance.LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_pattern": JSON_WHITESPACE}
            )
        except ValueError as error:
            raise UsageError(f"the {grammar.kind.value} cannot be used: {_one_line(str(error))}") from error
    if kind is GrammarKind.REGEX:
        return llguidance.LLMatcher.grammar_from_regex(text)
    if kind is GrammarKind.CHOICE:
        text = f"start: {' | '.join(json.dumps(choice) for choice in _choices(text))}"
    return llguidance.LLMatcher.grammar_from_lark(text)


def _choices(text: str) -> list[str]:
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError):
        choices = None
    if not isinstance(choices, list) or not choices or not all(isinstance(each, str) for each in choices):
        raise UsageError("choice must be a JSON list of at least one text")
    return choices


def _one_line(message: str) -> str:
    """An error of llguidance without its pictures of the grammar."""
    first, *others = message.strip().splitlines()
    return ": ".join([first.removesuffix(":"), *(line for line in others if line.startswith("error: "))])
