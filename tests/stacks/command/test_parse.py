"""A pasted launch command becomes data, or one clear sentence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import UsageError
from draftproof.stacks.command.command import Command, GivenFlag, Variable
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.stack import StackKind

SGLANG = "python3 -m sglang.launch_server"


def flags(command: Command) -> list[str]:
    return [str(flag) for flag in command.flags]


def test_variables_continuations_quotes_and_comments() -> None:
    command = parse_command(
        "CUDA_VISIBLE_DEVICES=0 SGLANG_X='a b' python3 -m sglang.launch_server --model-path /m --tp=8 \\\n"
        "  --speculative-algorithm NEXTN \\\n"
        '  --json-model-override-args \'{"a": {"b": 1}}\' --trust-remote-code   # a reason\n'
    )
    assert command.environment == (Variable("CUDA_VISIBLE_DEVICES", "0"), Variable("SGLANG_X", "a b"))
    assert command.program == ("python3", "-m", "sglang.launch_server")
    assert command.stack is StackKind.SGLANG
    assert command.flags == (
        GivenFlag("--model-path", ("/m",), 0),
        GivenFlag("--tp", ("8",), 2, attached=True),
        GivenFlag("--speculative-algorithm", ("NEXTN",), 3),
        GivenFlag("--json-model-override-args", ('{"a": {"b": 1}}',), 5),
        GivenFlag("--trust-remote-code", (), 7),
    )


@pytest.mark.parametrize(
    ("text", "stack", "positionals"),
    [
        ("vllm serve Qwen/Qwen3.5-27B --port 1", StackKind.VLLM, ("Qwen/Qwen3.5-27B",)),
        ("/opt/venv/bin/vllm serve m", StackKind.VLLM, ("m",)),
        ("uv run --with vllm vllm serve m", StackKind.VLLM, ("m",)),
        ("sglang serve --model-path m", StackKind.SGLANG, ()),
        ("python -m vllm.entrypoints.openai.api_server --model m", StackKind.VLLM, ()),
        ("python3 -m vllm.entrypoints.cli.main serve m", StackKind.VLLM, ("m",)),
        ("python sglang/launch_server.py --model-path m", StackKind.SGLANG, ()),
        ("nohup numactl -N 0 python -m sglang.launch_server --tp 2", StackKind.SGLANG, ()),
        ("--tp 8 --model-path m", None, ()),
        ("draftproof serve tiny", StackKind.NATIVE, ("tiny",)),
    ],
)
def test_the_server_is_found_behind_what_starts_it(
    text: str, stack: StackKind | None, positionals: tuple[str, ...]
) -> None:
    command = parse_command(text)
    assert (command.stack, command.positionals) == (stack, positionals)


def test_a_container_command_counts_from_its_image_on() -> None:
    command = parse_command(
        "docker run --rm --gpus all -e HF_TOKEN=x --env=A=1 -v $HOME/.cache:/root --ipc=host \\\n"
        " vllm/vllm-openai:v0.19.0 --model m --speculative-config.method mtp"
    )
    assert command.stack is StackKind.VLLM
    assert command.environment == (Variable("HF_TOKEN", "x"), Variable("A", "1"))
    assert flags(command) == ["--model m", "--speculative-config.method mtp"]
    assert (command.flags[1].base, command.flags[1].path) == ("--speculative-config", ("method",))


def test_a_shell_inside_a_container_is_read_through() -> None:
    command = parse_command(
        'docker run -it img bash -lc "export A=1 && exec python -m sglang.launch_server --tp 2"'
    )
    assert (command.stack, command.variable("A"), flags(command)) == (StackKind.SGLANG, "1", ["--tp 2"])


def test_variables_that_the_text_sets_are_put_in() -> None:
    command = parse_command(
        f"MODEL=/models/x\nexport TP=4;\n{SGLANG} --model-path ${{MODEL}}/y --tp $TP > log 2>&1 &"
    )
    assert flags(command) == ["--model-path /models/x/y", "--tp 4"]


def test_options_one_a_line_need_no_backslashes() -> None:
    assert flags(parse_command("--tp 8\n--model-path m\n")) == ["--tp 8", "--model-path m"]


def test_a_json_list_of_words() -> None:
    assert flags(parse_command('["--tp", "8", "--model-path", "a b"]')) == ["--tp 8", "--model-path 'a b'"]


def test_numbers_with_a_sign_are_values_and_repeated_options_are_kept() -> None:
    command = parse_command("--seed -1 --scale -.5e-3 --seed 2")
    assert [flag.values for flag in command.named("--seed")] == [("-1",), ("2",)]
    assert command.last("--seed") == GivenFlag("--seed", ("2",), 4)
    assert command.last("--absent") is None


def test_what_follows_a_pipe_is_no_part_of_the_command() -> None:
    assert flags(parse_command(f"{SGLANG} --tp 2 2>&1 | tee --append log")) == ["--tp 2"]


def test_neighbouring_commands_that_start_no_server_are_passed_over() -> None:
    assert flags(parse_command(f"pip install sglang\nsource venv/bin/activate && {SGLANG} --tp 2")) == [
        "--tp 2"
    ]


def test_words_after_two_dashes_are_positionals() -> None:
    assert parse_command("vllm serve --port 1 -- m").positionals == ("m",)


def test_a_command_is_written_as_a_shell_would_read_it() -> None:
    text = f"A='x y' {SGLANG} --model-path '/a b' --tp=8"
    assert str(parse_command(text)) == text
    assert parse_command(str(parse_command(text))) == parse_command(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the command is empty"),
        (" \n\t", "the command is empty"),
        ("rm -rf /", "starts no server"),
        ("vllm bench serve", "starts no server"),
        ("# only a comment", "starts no server"),
        (f"{SGLANG} --tp 2; {SGLANG} --tp 4", "starts 2 servers"),
        (f"{SGLANG} --served-model-name 'x", "single quote opened on line 1"),
        (f'{SGLANG} \\\n --served-model-name "x', "double quote opened on line 2"),
        (f"{SGLANG} \u2013tp 8", "dash \u2013"),
        (f"{SGLANG} --served-model-name “x”", "typographic quote “"),
        (f"{SGLANG} \\ \n --tp 2", "line 1 of the command ends with a space after the backslash"),
        (f"{SGLANG} --model-path $MODEL", "leaves $MODEL to the shell"),
        (f"{SGLANG} --model-path $(cat m)", "leaves $(cat m) to the shell"),
        (f"{SGLANG} --model-path `cat m`", "leaves `cat m` to the shell"),
        (f"{SGLANG} --tp 2 (a)", "'('"),
        (f"{SGLANG} ---tp 2", "'---tp' in the command is no option"),
        (f"{SGLANG} --tp\x00 2", "control character '\\x00'"),
        ("[1, 2]", "JSON list of something else"),
        ("[--tp", "no JSON list of words"),
        ("[" * 99_000, "no JSON list of words"),
        ("docker run --rm", "names no image"),
        ("docker exec x vllm serve m", "read from `run` on"),
        ("--a " * 30_000, "at most 100000 are read"),
        ("-a " * 5_000, "at most 4000 are read"),
        ('bash -c \'bash -c "bash -c \\"bash -c vllm\\""\'', "too many shells"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_command(text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="-=a1 \n'\"\\$`#;&|<>(){}[]\u2013,.", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_command_or_a_usage_error(text: str) -> None:
    try:
        command: Command | None = parse_command(text)
        sentence = ""
    except UsageError as error:
        command, sentence = None, str(error)
    assert "\n" not in sentence
    assert command is None or all(flag.name.startswith("-") for flag in command.flags)
