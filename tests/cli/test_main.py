"""The boundary: one line, the right exit code, no traceback, whatever happens inside a command."""

import json
import os
import resource
import subprocess
import sys
import time

import pytest

from draftproof.cli import main as cli
from draftproof.cli.main import COMMANDS, Command, run
from draftproof.evidence.report_models import ErrorModel

PYTHON = [sys.executable, "-m", "draftproof.cli.main"]


@pytest.fixture
def failing(monkeypatch):
    names = (
        "no_network",
        "defect",
        "interrupted",
        "three",
        "done",
        "no_package",
        "no_gpu_package",
        "full_gpu",
    )
    rows = tuple(Command(name, f"tests.cli.commands_that_fail:{name}", "A test command.") for name in names)
    monkeypatch.setattr(cli, "COMMANDS", rows)


def process(*arguments, **changes):
    return subprocess.run(
        [*PYTHON, *arguments], capture_output=True, text=True, timeout=60, check=False, **changes
    )


def test_help_names_every_command_and_the_exit_codes(capsys):
    assert run([]) == 0
    text = capsys.readouterr().out
    assert all(command.name in text for command in COMMANDS)
    assert "3 not enough evidence" in " ".join(text.split())


def test_version(capsys):
    from draftproof import __version__

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"draftproof {__version__}\n"


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_of_the_table_loads_and_explains_itself(command, capsys):
    assert run([command, "--help"]) == 0
    assert f"draftproof {command}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "code"), [("three", 3), ("done", 0), ("interrupted", 130)])
def test_a_command_ends_with_its_exit_code(name, code, failing, capsys):
    assert run([name]) == code
    assert capsys.readouterr().err == ""


def test_a_full_gpu_is_no_defect(failing, capsys):
    assert run(["full_gpu"]) == 4
    assert capsys.readouterr().err.startswith("error: the GPU is out of memory. Lower")


def test_an_error_of_the_tree_is_one_printable_line_with_the_remedy(failing, capsys):
    assert run(["no_network"]) == 4
    written = capsys.readouterr()
    assert written.err == (
        "error: the hub\\x1b[31m cannot be reached. Set HF_HUB_OFFLINE=1 to use the cache\n"
    )
    assert written.out == ""


def test_the_same_error_as_json_has_the_same_exit_code(failing, capsys):
    assert run(["no_network", "--json"]) == 4
    text = capsys.readouterr().out
    parsed = json.loads(text)
    assert ErrorModel.model_validate_json(text).exit_code == 4
    assert (parsed["kind"], parsed["error"], parsed["exit_code"]) == ("error", "EnvironmentProblem", 4)
    assert parsed["remedy"] == "Set HF_HUB_OFFLINE=1 to use the cache"


def test_a_missing_package_is_an_environment_problem(failing, capsys):
    assert run(["no_package"]) == 4
    assert capsys.readouterr().err == (
        "error: the package torch is not installed. Run: pip install 'draftproof[engine]'\n"
    )
    assert run(["no_gpu_package"]) == 4
    assert capsys.readouterr().err == (
        "error: the package triton is not installed. Run: pip install 'draftproof[gpu]'\n"
    )


def test_a_defect_is_one_line_and_never_counts_as_disproved(failing, capsys):
    assert run(["defect"]) == 70
    error = capsys.readouterr().err
    assert error.startswith("error: IndexError: list index out of range.")
    assert "--traceback" in error
    assert error.count("\n") == 1


def test_the_traceback_is_there_for_who_asks(failing):
    with pytest.raises(IndexError):
        run(["defect", "--traceback"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["verifi"], "Did you mean 'verify'?"),
        (["verify", "--no-such-option"], "--no-such-option"),
        (["verify"], "See 'draftproof verify --help'"),
    ],
)
def test_wrong_usage_is_one_line_with_exit_code_2(arguments, named, capsys):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert named in error
    assert error.count("\n") == 1


def test_wrong_usage_is_json_for_who_reads_json(capsys):
    assert run(["verify", "--json", "--no-such-option"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_json_after_the_separator_is_no_option(failing, capsys):
    assert run(["defect", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["verify", "--help"], ["inspect", "--help"]]
)
def test_quick_answers_import_neither_torch_nor_the_hub(arguments):
    code = (
        "import sys; from draftproof.cli.main import run; run(sys.argv[1:]); "
        "print(sorted({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)), file=sys.stderr)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stderr == "[]\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["inspect"]])
def test_quick_answers_take_less_than_half_a_second(arguments, dense_checkpoint):
    folder = [str(dense_checkpoint.folder)] if arguments == ["inspect"] else []
    assert min(_seconds(*arguments, *folder) for _ in range(3)) < 0.5


def _seconds(*arguments):
    """Wall time or processor time, whichever is less: other work on the machine stretches the former."""
    used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    assert process(*arguments).returncode == 0
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return min(wall, after.ru_utime - used.ru_utime + after.ru_stime - used.ru_stime)


def test_a_reader_that_goes_away_changes_neither_the_exit_code_nor_stderr():
    code = (
        "import sys; from draftproof.cli import main as cli; "
        "cli.COMMANDS = (cli.Command('many', 'tests.cli.commands_that_fail:many_lines', ''),"
        " cli.Command('done', 'tests.cli.commands_that_fail:done', '')); sys.exit(cli.run(['many']))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "0\n"
        writer.stdout.close()
        errors = writer.stderr.read()
    assert (writer.wait(timeout=60), errors) == (1, "")


def test_help_into_a_closed_pipe_is_quiet():
    reader, closed = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [*PYTHON, "--help"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(closed)
    assert (finished.returncode, finished.stderr) == (141, "")
