"""What `draftproof serve` makes of a checkpoint and its options, before the engine is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.cli.main import run
from draftproof.cli.native_server import ServedText, sampling_defaults, served_settings, template_of
from draftproof.cli.server_announcement import CHAT_EXAMPLE
from draftproof.cli.server_options import SamplingSource, ServerRequest
from draftproof.errors import CheckpointError, UsageError
from draftproof.server.settings import SamplingDefaults
from draftproof.text.tokenizer import Tokenizer
from tests.support.scripted_engine import TINY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded checkpoint's small files."""
    copy = tmp_path / "my-model"
    shutil.copytree(TINY, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    return copy


def with_generation(folder: Path, **values: object) -> SamplingDefaults:
    (folder / "generation_config.json").write_text(json.dumps(values), encoding="utf-8")
    return sampling_defaults(open_checkpoint(str(folder)))


def test_requests_get_what_the_checkpoint_recommends(folder: Path) -> None:
    found = with_generation(folder, temperature=0.6, top_k=20, top_p=0.95)
    assert found == SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95)


def test_without_a_recommendation_they_get_the_apis_values(folder: Path) -> None:
    assert with_generation(folder, do_sample=True) == SamplingDefaults()
    (folder / "generation_config.json").unlink()
    assert sampling_defaults(open_checkpoint(str(folder))) == SamplingDefaults()


def test_a_recommendation_that_makes_no_sense_is_named(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config.json.*top_p"):
        with_generation(folder, top_p=7)


def test_the_model_is_called_after_its_folder_unless_names_are_given(folder: Path) -> None:
    opened = open_checkpoint(str(folder))
    assert served_settings(str(folder), opened, ServerRequest()).model_names == ("my-model",)
    named = ServerRequest(model_names=("a", "b"), sampling_source=SamplingSource.OPENAI)
    settings = served_settings(f"{folder}/", opened, named)
    assert (settings.model_names, settings.sampling) == (("a", "b"), SamplingDefaults())


def test_a_given_template_takes_the_place_of_the_checkpoints(folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    given = tmp_path / "given.jinja"
    given.write_text("{{ messages[0].content }}!", encoding="utf-8")
    template = template_of(folder, given, tokenizer)
    assert template is not None
    assert template.render([{"role": "user", "content": "Hello"}]) == "Hello!"
    with pytest.raises(UsageError, match=r"--chat-template .* cannot be read"):
        template_of(folder, tmp_path / "none.jinja", tokenizer)


def test_what_it_says_to_try_is_what_it_can_answer(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    assert ServedText(tokenizer, template_of(folder, None, tokenizer)).example is CHAT_EXAMPLE
    without = ServedText(tokenizer, None).example
    assert without.path == "/v1/completions"
    assert without.limit is not None
    assert "--chat-template" in without.limit


def test_a_checkpoint_without_a_template_serves_no_chat(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert template_of(folder, None, tokenizer) is None


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["serve", "no/such/checkpoint", "--port", "0"], 2, "no/such/checkpoint"),
        (["serve", "tiny", "--host", "no such host"], 2, "--host no such host"),
        (["serve", "tiny", "--port", "0", "--chat-template", "/nowhere"], 2, "--chat-template /nowhere"),
        (["serve", "tiny", "--k", "99"], 2, "from 1 to 16, not 99"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_loaded(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
