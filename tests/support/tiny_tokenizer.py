"""A byte-level tokenizer for generated checkpoints: 256 bytes, a few merges, special tokens from id 300.

Ids between the last merge and 300, and from 312 to the end of the vocabulary, are padding rows as in real
checkpoints. Special tokens and their order are those of Qwen3.5.
"""

from __future__ import annotations

import json
from pathlib import Path

END_OF_TEXT = 300
TURN_START = 301
TURN_END = 302
VISION_START = 303
VISION_END = 304
IMAGE_PAD = 306
VIDEO_PAD = 307
SPECIAL_TOKENS = {
    "<|endoftext|>": END_OF_TEXT,
    "<|im_start|>": TURN_START,
    "<|im_end|>": TURN_END,
    "<|vision_start|>": VISION_START,
    "<|vision_end|>": VISION_END,
    "<|vision_pad|>": 305,
    "<|image_pad|>": IMAGE_PAD,
    "<|video_pad|>": VIDEO_PAD,
    "<tool_call>": 308,
    "</tool_call>": 309,
    "<think>": 310,
    "</think>": 311,
}
_ORDINARY = {"<tool_call>", "</tool_call>", "<think>", "</think>"}
_MERGES = ("t h", "th e", "i n", "e r", "a n", "an d", "o n", "Ġ the", "Ġ a", "Ġ and")
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}"
    "{%- else -%}{{- '<think>\\n' -}}{%- endif -%}"
    "{%- endif -%}"
)


def write_tokenizer(folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json (with eos and pad) and chat_template.jinja."""
    alphabet = _byte_alphabet()
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    for merge in _MERGES:
        vocabulary[merge.replace(" ", "")] = len(vocabulary)
    # Ids must be given by hand: added tokens take theirs from this list, not from the size of the vocabulary.
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token not in _ORDINARY,
        }
        for token, index in SPECIAL_TOKENS.items()
    ]
    # Gap ids would otherwise be refused; they decode to nothing meaningful, as in the real vocabulary.
    for index in range(len(vocabulary), END_OF_TEXT):
        vocabulary[f"<unused_{index}>"] = index
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary | SPECIAL_TOKENS,
        "merges": [merge.split(" ") for merge in _MERGES],
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    _write(folder / "tokenizer.json", tokenizer)
    _write(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "eos_token": "<|im_end|>",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    (folder / "chat_template.jinja").write_text(_CHAT_TEMPLATE, encoding="utf-8")


def _byte_alphabet() -> list[str]:
    """The printable character that byte-level BPE uses for each byte 0..255 (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
