"""The shipped checkpoint as it lies in the package: whole, consistent, and what its card says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

import draftproof
from tools.tiny.conversations import conversation
from tools.tiny.evaluate import accept_walk, continue_text, drafts_everywhere, load_checkpoint
from tools.tiny.model import TinyModel
from tools.tiny.sources import PERMISSIVE, RESTRICTED

FOLDER = Path(draftproof.__file__).parent / "data" / "tiny"
MAX_BYTES = 24_000_000


@pytest.fixture(scope="module")
def model() -> TinyModel:
    return load_checkpoint(FOLDER)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def _prompts() -> list[dict[str, str]]:
    return json.loads((FOLDER / "prompts.json").read_text())["prompts"]


def test_it_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MAX_BYTES


def test_the_quantization_configs_agree_and_leave_the_head_out() -> None:
    inside = json.loads((FOLDER / "config.json").read_text())["quantization_config"]
    beside = json.loads((FOLDER / "hf_quant_config.json").read_text())["quantization"]
    assert inside["ignore"] == beside["exclude_modules"]
    assert "mtp*" in inside["ignore"]


def test_token_ids_of_the_configs_are_those_of_the_tokenizer(tokenizer: Tokenizer) -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    generation = json.loads((FOLDER / "generation_config.json").read_text())
    assert config["text_config"]["eos_token_id"] == tokenizer.token_to_id("<|endoftext|>")
    assert generation["eos_token_id"][0] == tokenizer.token_to_id("<|im_end|>")
    assert config["image_token_id"] == tokenizer.token_to_id("<|image_pad|>")
    assert tokenizer.get_vocab_size() <= config["text_config"]["vocab_size"]


def test_the_template_renders_what_the_model_was_trained_on() -> None:
    from draftproof.text.chat_template import ChatTemplate

    template = ChatTemplate.load(FOLDER)
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    assert template.render(turns, add_generation_prompt=False) == conversation("Why?", "Because.")
    start = template.render(turns[:1])
    assert conversation("Why?", "Because.").startswith(start)
    assert start.endswith("</think>\n\n")
    assert template.render(turns[:1], variables={"enable_thinking": True}).endswith("assistant\n<think>\n")


def test_every_prompt_says_where_it_is_from() -> None:
    prompts = _prompts()
    assert 6 <= len(prompts) <= 8
    assert {prompt["kind"] for prompt in prompts} == {"code", "prose", "chat"}
    assert all(prompt["source"] and PERMISSIVE.search(prompt["licence"]) for prompt in prompts)


def test_every_source_of_the_text_is_permissive_and_none_is_held_out() -> None:
    rows = json.loads((FOLDER / "provenance.json").read_text())["trained_on"]
    assert all(PERMISSIVE.search(row["licence"]) and not RESTRICTED.search(row["licence"]) for row in rows)
    assert {row["name"] for row in rows}.isdisjoint({"marshmallow", "luigi", "werkzeug"})


@torch.no_grad()
def test_transformers_computes_the_same_logits(model: TinyModel, tokenizer: Tokenizer) -> None:
    from transformers import AutoConfig, Qwen3_5MoeForCausalLM

    reference = Qwen3_5MoeForCausalLM(AutoConfig.from_pretrained(FOLDER).text_config).eval()
    weights = {
        name.replace("model.language_model.", "model."): value
        for name, value in model.state_dict().items()
        if not name.startswith("mtp.")
    }
    reference.load_state_dict(weights, strict=True)
    tokens = torch.tensor([tokenizer.encode(_prompts()[0]["text"]).ids])
    ours = model.lm_head(model(tokens, depth=0).hidden)
    torch.testing.assert_close(ours, reference(tokens[:, :-1]).logits, atol=1e-3, rtol=0)


def test_the_head_is_accepted_on_text_that_was_held_out(model: TinyModel, tokenizer: Tokenizer) -> None:
    prompt = next(prompt for prompt in _prompts() if prompt["id"] == "heap")
    tokens = torch.tensor([tokenizer.encode(prompt["text"]).ids])
    text = continue_text(model, tokens, 24, temperature=0.0, noise=None)
    drafts = drafts_everywhere(model, text, 3, temperature=0.0, noise=None)
    passes, emitted = accept_walk(text, drafts, tokens.shape[1] - 1, text.shape[1] - 4)
    assert emitted / passes > 2.0
