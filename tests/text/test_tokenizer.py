"""The tokenizer against transformers, and what it says of broken files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from draftproof.errors import CheckpointError, UnsupportedRequest
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.support.tiny_tokenizer import END_OF_TEXT, SPECIAL_TOKENS, TURN_END, write_tokenizer

TEXTS = [
    "",
    "the cat and the hat",
    "  two  spaces\n\ttabs\r\n",
    "naïve café — “quotes”",
    "漢字かな交じり文 한국어",
    "🙂👩‍👩‍👧 zero\u200bwidth",
    "<|im_start|>user\nhello<|im_end|>\n<think>\n",
    "\x00\x7f\ufffd",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def test_ids_and_texts_are_those_of_transformers(folder: Path, tokenizer: Tokenizer) -> None:
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text)
        assert tokenizer.encode_rendered(text) == reference.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        expected = reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokenizer.decode(ids) == expected


def test_a_tokenizer_class_that_nobody_knows_does_not_matter(tmp_path: Path) -> None:
    """transformers 5 writes class names that older ones refuse; the ids are in tokenizer.json alone."""
    write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": "NobodysTokenizer"})
    )
    assert Tokenizer.load(tmp_path).decode(Tokenizer.load(tmp_path).encode("the end")) == "the end"


def test_special_tokens_by_name_and_by_id(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_tokens.text("eos_token") == "<|im_end|>"
    assert tokenizer.special_tokens.text("bos_token") is None
    assert tokenizer.eos_token_id == TURN_END
    assert tokenizer.token_id("<|endoftext|>") == END_OF_TEXT
    assert tokenizer.token_id("no such token") is None
    assert END_OF_TEXT in tokenizer.special_ids
    # Thinking and tool calls are part of the text.
    assert SPECIAL_TOKENS["<think>"] not in tokenizer.special_ids
    assert tokenizer.decode([SPECIAL_TOKENS["<think>"], TURN_END]) == "<think>"


def test_special_tokens_may_be_texts_objects_or_missing() -> None:
    config = {
        "bos_token": None,
        "eos_token": {"content": "</s>", "lstrip": False},
        "pad_token": "<pad>",
        "other": 1,
    }
    assert SpecialTokens.of_config(config).by_name == (("eos_token", "</s>"), ("pad_token", "<pad>"))


def test_a_tokenizer_may_add_a_beginning_which_a_rendered_prompt_already_has(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    beginning = {"id": "<|endoftext|>", "ids": [END_OF_TEXT], "tokens": ["<|endoftext|>"]}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": beginning},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    plain = tokenizer.encode_rendered("the")
    assert tokenizer.encode("the") == [END_OF_TEXT, *plain]


def test_truncation_and_padding_in_the_file_do_not_change_prompts(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": END_OF_TEXT,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    assert (
        tokenizer.decode(tokenizer.encode("longer than four"), skip_special_tokens=False)
        == "longer than four"
    )


def test_a_folder_without_a_tokenizer_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json\. Make one"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "Nothing"}}'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"eos_token": "a", "eos_token": "b"}'),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=name):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_config_names_no_special_tokens(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).eos_token_id is None


def test_ids_without_a_token_have_no_text(tokenizer: Tokenizer) -> None:
    """Logits are wider than the vocabulary; such an id can come out of a model."""
    beyond = 5_000
    assert tokenizer.piece(beyond) == b""
    assert tokenizer.decode([65, beyond]) == tokenizer.decode([65])


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}])
def test_only_byte_level_tokens_have_bytes_of_their_own(tmp_path: Path, decoder: object) -> None:
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"decoder": decoder}))
    with pytest.raises(UnsupportedRequest, match="only byte-level tokenizers"):
        Tokenizer.load(tmp_path).piece(1)
