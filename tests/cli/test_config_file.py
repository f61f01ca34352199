"""`--config FILE`: options by their long names, and one line for what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli.main import run


@pytest.fixture
def serve(tmp_path, capsys):
    """Settings of `serve tiny` with a file of options; or its exit code and error."""

    def call(text, *words):
        file = tmp_path / "options.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        code = run(["serve", "tiny", "--config", str(file), *words, "--dry-run", "--json"])
        output = capsys.readouterr()
        return json.loads(output.out) if code == 0 else (code, output.err)

    return call


@pytest.mark.parametrize(
    "key", ["max-model-len", "max_model_len", "--max-model-len", "context-length", "max-length"]
)
def test_every_long_name_of_an_option_is_a_key(serve, key):
    assert serve(f"{key}: 77")["max_length"] == 77


def test_values_of_every_kind(serve):
    settings = serve(
        """
        device: cuda
        draft-policy: fixed
        gpu-memory-utilization: 0.5
        speculative-config: {method: mtp, num_speculative_tokens: 2}
        enable-prefix-caching: false
        served-model-name: [one, two]
        allowed-origin: http://a.example
        api-key: 12345
        request-seconds:
        """
    )
    assert settings["draft_policy"] == "fixed"
    assert settings["memory_share"] == 0.5
    assert settings["draft_tokens"] == 2
    assert settings["prefix_snapshots"] == 0
    assert settings["model_names"] == ["one", "two"]
    assert settings["allowed_origins"] == ["http://a.example"]
    assert settings["api_keys"] == "1 given"
    assert settings["request_seconds"] is None


def test_the_command_line_wins(serve):
    assert serve("port: 1\nserved-model-name: [a, b]", "--port", "2", "--served-model-name", "c")["port"] == 2


def test_an_empty_file_changes_nothing(serve):
    assert serve("# nothing\n")["port"] == 8000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "prot is no option that can be set in a file. Nearest: port."),
        ("zzz: 1", "zzz is no option that can be set in a file. Keys are long names"),
        ("config: other.yaml", "config is no option"),
        ("dry-run: true", "dry-run is no option"),
        ("3: 4", "3 is no option"),
        ("port: abc", "'--port'"),
        ("port: [1, 2]", "port is [1, 2]. Write one word or number."),
        ("port: true", "port is True"),
        ("enable-prefix-caching: maybe", "enable-prefix-caching is 'maybe'. Write true or false."),
        ("k: 1\ndraft-tokens: 2", "k and draft-tokens are the same option. Keep one."),
        ("gpu: h200", "--gpu means nothing to draftproof's own server"),
        ("- port", "holds no options"),
        ("port", "holds no options"),
        ("a: [", "is no YAML"),
        (b"\xff\xfe\x00", "is no YAML"),
        ("speculative-config: &x {method: *x}", "speculative-config cannot be written as JSON"),
        ("speculative-config: {[1]: 2}", "is no YAML"),
        ("!!python/object/apply:os.system ['true']", "is no YAML"),
        (b"#" * (1 << 20) + b"#", "more than 1 MiB"),
    ],
)
def test_what_is_no_option_is_one_clear_line(serve, text, message):
    code, error = serve(text)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_named(capsys):
    assert run(["serve", "tiny", "--config", str(Path("nowhere.yaml")), "--dry-run"]) == 2
    assert "--config nowhere.yaml cannot be read: No such file" in capsys.readouterr().err
