"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer

USER = {"role": "user", "content": "Hi"}


def test_a_text_has_the_tokens_of_a_prompt(http: TestClient, tokenizer: Tokenizer) -> None:
    answer = http.post("/tokenize", json={"prompt": "Hello world", "return_token_strs": True}).json()
    ids = tokenizer.encode("Hello world")
    assert answer["tokens"] == ids
    assert answer["count"] == len(ids)
    assert answer["max_model_len"] == 512
    assert "".join(answer["token_strs"]) == "Hello world"


@pytest.mark.parametrize("begins_answer", [True, False])
def test_a_conversation_has_the_tokens_that_chat_would_send(
    http: TestClient, tokenizer: Tokenizer, template: ChatTemplate, begins_answer: bool
) -> None:
    body = {"messages": [USER], "add_generation_prompt": begins_answer}
    found = http.post("/tokenize", json=body).json()["tokens"]
    assert found == tokenizer.encode_rendered(template.render([USER], None, begins_answer))


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": [USER]}])
def test_exactly_one_of_text_and_conversation(http: TestClient, body: dict[str, object]) -> None:
    answer = http.post("/tokenize", json=body)
    assert answer.status_code == 400
    assert "either prompt or messages" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", ["Hello world", "<|im_start|>user", "Grüße 👋", "", "x" * 50_000])
def test_tokens_go_back_to_their_text(http: TestClient, text: str) -> None:
    tokens = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": text}


def test_a_token_that_is_not_there_is_refused(http: TestClient) -> None:
    answer = http.post("/detokenize", json={"tokens": [1, 4096]})
    assert answer.status_code == 400
    assert "token 4096" in answer.json()["error"]["message"]
