"""Counts the tokens of texts and writes the most frequent ones as a draft vocabulary.

    python -m tools.make_draft_vocabulary path/to/checkpoint texts.txt --rows 32768 --out tokens.txt

Texts like the ones that will be generated give the best choice. Special tokens are kept whatever their
frequency.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from draftproof.speculation.draft_vocabulary import DEFAULT_ROWS, tokens_of_texts, write_draft_vocabulary


def main(arguments: Sequence[str]) -> None:
    """Read the texts, count, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path, help="a folder with tokenizer.json")
    parser.add_argument("texts", type=Path, nargs="+", help="UTF-8 files")
    parser.add_argument("--rows", type=int, default=DEFAULT_ROWS, help="most tokens to keep")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    tokenizer = tokenizers.Tokenizer.from_file(str(given.checkpoint / "tokenizer.json"))
    special = [token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    texts = (tokenizer.encode(path.read_text(encoding="utf-8")).ids for path in given.texts)
    chosen = tokens_of_texts(texts, given.rows, special)
    write_draft_vocabulary(given.out, chosen, f"{len(chosen)} tokens of {len(given.texts)} texts")
    print(f"{given.out}: {len(chosen)} tokens")


if __name__ == "__main__":
    main(sys.argv[1:])
