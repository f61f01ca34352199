"""What can stand after --stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.errors import UsageError
from draftproof.stacks.request import StackRequest, parse_requests
from draftproof.stacks.stack import StackKind


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("sglang", StackRequest("sglang", StackKind.SGLANG)),
        ("vLLM", StackRequest("vLLM", StackKind.VLLM)),
        ("native", StackRequest("native", StackKind.NATIVE)),
        ("sglang==0.5.12", StackRequest("sglang==0.5.12", StackKind.SGLANG, release="0.5.12")),
        ("vllm == v0.33.0", StackRequest("vllm == v0.33.0", StackKind.VLLM, release="0.33.0")),
        ("/opt/env", StackRequest("/opt/env", path=Path("/opt/env"))),
        ("./vllm.whl", StackRequest("./vllm.whl", path=Path("vllm.whl"))),
        ("sglang@/opt/env", StackRequest("sglang@/opt/env", StackKind.SGLANG, path=Path("/opt/env"))),
        ("vllm@src", StackRequest("vllm@src", StackKind.VLLM, path=Path("src"))),
    ],
)
def test_every_form(text: str, request_: StackRequest) -> None:
    assert parse_requests(text) == (request_,)


def test_several_are_compared_each_once_and_in_order() -> None:
    requests = parse_requests("sglang==0.5.12, vllm==0.33.0,sglang==0.5.12")
    assert [request.text for request in requests] == ["sglang==0.5.12", "vllm==0.33.0"]


def test_a_path_with_a_comma_is_one_path(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    assert parse_requests(str(folder)) == (StackRequest(str(folder), path=folder),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sglnag==0.5.12", "Did you mean sglang==0.5.12?"),
        ("sglang>=0.5", "sglang==0.5."),
        ("sglang=0.5.12", "sglang==0.5.12."),
        ("vllm==", "vllm==0.33.0."),
        ("vllm==0.33.*", "no exact version"),
        ("native==1.0", "Write: native."),
        ("native@/opt", "Write: native."),
        ("vllm@", "vllm@PATH"),
        ("sglang,", "empty part"),
        ("", "empty part"),
        ("tensorrt", "Give sglang, vllm, native"),
    ],
)
def test_a_wrong_spelling_is_answered_with_the_right_one(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requests(text)
    assert said in str(caught.value)


def test_a_folder_without_a_slash_is_pointed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"write \./checkout"):
        parse_requests("checkout")
