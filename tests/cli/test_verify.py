"""`draftproof verify`: one verdict and one exit code, whatever form it is read in."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof.cli.main import run
from tests.support.checkpoints import NVFP4_ROUTED, CheckpointOptions, write_checkpoint
from tests.support.faults import copy_of, delete_shard, fill_tensor, protect, set_config, strip_mtp


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3, tokenizer=True)
    return protect(write_checkpoint(tmp_path_factory.mktemp("verify") / "nvfp4", options).folder)


@pytest.fixture
def damaged(sound, tmp_path):
    def make(fault):
        folder = copy_of(sound, tmp_path / "damaged")
        fault(folder)
        return folder

    return make


def nothing(folder):
    """No fault."""


def unknown(folder):
    set_config(folder, "model_type", "something")
    set_config(folder, "text_config.model_type", "something")


CASES = [
    (nothing, 0, "PROVEN"),
    (strip_mtp, 1, "DISPROVED"),
    (lambda folder: delete_shard(folder, "model-00002-of-00003.safetensors"), 1, "DISPROVED"),
    (lambda folder: fill_tensor(folder, "mtp.fc.weight", 0.0), 1, "DISPROVED"),
    (lambda folder: set_config(folder, "mtp_num_hidden_layers", 5), 1, "DISPROVED"),
    (unknown, 3, "UNKNOWN"),
    (lambda folder: (folder / "config.json").write_text("{"), 1, "DISPROVED"),
]


@pytest.mark.parametrize(("fault", "code", "word"), CASES)
def test_text_and_json_have_the_same_verdict_and_exit_code(damaged, capsys, fault, code, word):
    folder = damaged(fault)
    assert run(["verify", str(folder)]) == code
    written = capsys.readouterr()
    assert f"{word}  " in written.out.split("─" * 30)[-1]
    assert written.err == ""
    assert run(["verify", str(folder), "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"].upper(), report["exit_code"]) == (word, code)
    assert [link["link"] for link in report["links"]] == ["config", "weights"]


def test_what_the_chain_of_links_says_about_a_broken_config(damaged, capsys):
    run(["verify", str(damaged(lambda folder: set_config(folder, "mtp_num_hidden_layers", 5))), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["broken_at"] == "config"
    assert [link["counts"] for link in report["links"]] == [True, False]


def test_reports_are_written_as_asked_and_say_the_same(sound, tmp_path, capsys):
    first, second = tmp_path / "a.json", tmp_path / "b.txt"
    assert run(["verify", str(sound), "--report", str(first), "--markdown", str(second)]) == 0
    assert json.loads(first.read_text())["verdict"] == "proven"
    assert "PROVEN" in second.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.txt"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("report.pdf", ".html, .json or .md"),
        ("missing/report.md", "there is no folder"),
        (".", "is a folder"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_any_work(sound, tmp_path, capsys, path, named):
    assert run(["verify", str(sound), "--markdown" if path == "." else "--report", str(tmp_path / path)]) == 2
    written = capsys.readouterr()
    assert named in written.err
    assert written.out == ""


def test_a_report_never_takes_the_place_of_a_device(sound, tmp_path, capsys):
    pipe = tmp_path / "report.md"
    os.mkfifo(pipe)
    assert run(["verify", str(sound), "--report", str(pipe)]) == 2
    assert "no regular file" in capsys.readouterr().err
    assert pipe.is_fifo()


def test_a_report_that_fails_in_the_end_leaves_one_json_object_and_no_file(
    sound, tmp_path, capsys, monkeypatch
):
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_space)
    assert run(["verify", str(sound), "--json", "--report", str(tmp_path / "r.md")]) == 2
    written = capsys.readouterr()
    assert json.loads(written.out)["kind"] == "error"
    assert "No space left" in written.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_permission_is_refused(sound, tmp_path, capsys, monkeypatch):
    # root may write anywhere, so the answer is replaced and not the permission.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert run(["verify", str(sound), "--report", str(tmp_path / "r.md")]) == 2
    assert "not writable" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["./nowhere", "no such thing", ""])
def test_a_checkpoint_that_is_not_there_is_one_line(argument, capsys):
    assert run(["verify", argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_repository_without_network_is_one_line(capsys):
    assert run(["verify", "organisation/model"]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupt_ends_a_long_reading_at_once(sound):
    code = (
        "import sys, time; from draftproof.cli import main, verify; "
        "verify.check_weights = lambda *_: (print('reading', flush=True), time.sleep(60)); main.main()"
    )
    command = [sys.executable, "-c", code, "verify", str(sound)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (130, "")


def test_full_reads_everything(sound, capsys):
    assert run(["verify", str(sound), "--full", "--json"]) == 0
    assert not any("--full" in clause for clause in json.loads(capsys.readouterr().out)["does_not_prove"])


@pytest.mark.parametrize("command", [["verify"], ["verify", "--json"], ["inspect"], ["inspect", "--json"]])
def test_neither_torch_nor_the_hub_is_imported_for_a_folder(sound, command):
    code = (
        "import sys; from draftproof.cli.main import run; code = run(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules); "
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, command[0], str(sound), *command[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert finished.stderr == "0 []\n"


@pytest.mark.parametrize("command", [["verify"], ["verify", "--json"], ["inspect"]])
def test_output_into_a_pipe_that_closes_keeps_the_exit_code(damaged, command):
    folder = damaged(strip_mtp)
    reader, closed = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [sys.executable, "-m", "draftproof.cli.main", command[0], str(folder), *command[1:]],
        stdout=closed,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(closed)
    assert (finished.returncode, finished.stderr) == (0 if command == ["inspect"] else 1, "")


def test_hostile_text_in_a_checkpoint_does_not_reach_the_terminal(damaged, capsys):
    folder = damaged(lambda f: set_config(f, "architectures", ["\x1b[2JEvil\udcff"]))
    run(["verify", str(folder)])
    assert "\x1b" not in capsys.readouterr().out
    run(["verify", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["kind"] == "verify"


def test_no_colour_without_a_terminal_or_when_refused(sound):
    finished = subprocess.run(
        [sys.executable, "-m", "draftproof.cli.main", "verify", str(sound)],
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": ""},
        timeout=60,
        check=True,
    )
    assert b"\x1b[" not in finished.stdout


def test_a_terminal_that_speaks_ascii_only_is_served(damaged):
    folder = damaged(lambda f: set_config(f, "architectures", ["Größe"]))
    finished = subprocess.run(
        [sys.executable, "-m", "draftproof.cli.main", "verify", str(folder)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        timeout=60,
        check=False,
    )
    assert finished.returncode == 3, finished.stderr
    assert b"+ PROVEN" in finished.stdout
    assert b"Gr\\xf6\\xdfe" in finished.stdout
