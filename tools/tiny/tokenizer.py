"""Trains the byte-level BPE tokenizer, and turns documents into token shards.

    python -m tools.tiny.tokenizer train  --corpus CORPUS --out FOLDER
    python -m tools.tiny.tokenizer encode --corpus CORPUS --tokenizer FOLDER --out SHARDS

`train` writes tokenizer.json and tokenizer_config.json. `encode` writes train.bin and
heldout-{code,prose,chat}.bin (uint16, documents separated by <|endoftext|>) and sizes.json (tokens and UTF-8
bytes of each).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 4096
END_OF_TEXT = "<|endoftext|>"
# Qwen's added tokens, in Qwen's order; the second field is `special`.
ADDED_TOKENS = (
    (END_OF_TEXT, True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", False),
    ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False),
    ("<|repo_name|>", False),
    ("<|file_sep|>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
)
# Ids past the last token: like the released models, the embedding has a few rows that no text uses.
UNUSED_ROWS = 6
# Qwen3.5's split: contractions, words with combining marks, single digits, punctuation, line ends, spaces.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SAMPLE_BYTES = 30_000_000
BATCH = 512


def train_tokenizer(texts: Iterator[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Trains the tokenizer; added tokens come after the learnt ones, as in Qwen's vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(ADDED_TOKENS) - UNUSED_ROWS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(
        [AddedToken(text, special=special, normalized=False) for text, special in ADDED_TOKENS]
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(text)): {
            "content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": special,
        }
        for text, special in ADDED_TOKENS
    }  # fmt: skip
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 4096,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def encode_documents(tokenizer: Tokenizer, documents: list[dict[str, str]]) -> tuple[numpy.ndarray, int]:
    """All documents' ids, each ended by <|endoftext|>, and the UTF-8 bytes of the text."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    parts: list[numpy.ndarray] = []
    size = 0
    for start in range(0, len(documents), BATCH):
        texts = [document["text"] for document in documents[start : start + BATCH]]
        size += sum(len(text.encode()) for text in texts)
        for encoding in tokenizer.encode_batch_fast(texts):
            parts.append(numpy.array([*encoding.ids, end], dtype=numpy.uint16))
    return numpy.concatenate(parts), size


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _sample(documents: list[dict[str, str]], seed: int) -> Iterator[str]:
    order = random.Random(seed).sample(range(len(documents)), len(documents))
    used = 0
    for index in order:
        if used > SAMPLE_BYTES:
            return
        used += len(documents[index]["text"])
        yield documents[index]["text"]


def _encode(corpus: Path, folder: Path, out: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    train, held_out = _read(corpus / "train.jsonl"), _read(corpus / "heldout.jsonl")
    random.Random(0).shuffle(train)
    groups = {"train": train}
    for kind in ("code", "prose", "chat"):
        groups[f"heldout-{kind}"] = [document for document in held_out if document["kind"] == kind]
    out.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, documents in groups.items():
        ids, size = encode_documents(tokenizer, documents)
        ids.tofile(out / f"{name}.bin")
        sizes[name] = {"documents": len(documents), "tokens": len(ids), "bytes": size}
        print(name, sizes[name], flush=True)
    (out / "sizes.json").write_text(json.dumps(sizes, indent=1))


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("train", "encode"))
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.action == "encode":
        _encode(options.corpus, options.tokenizer, options.out)
        return
    save(train_tokenizer(_sample(_read(options.corpus / "train.jsonl"), seed=0)), options.out)


if __name__ == "__main__":
    main()
