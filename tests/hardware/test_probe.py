"""What this machine's driver says, with a program that stands in for nvidia-smi."""

import stat

import pytest

from draftproof.hardware.probe import probe_gpus


@pytest.fixture
def program(tmp_path):
    """Writes a shell script that stands in for nvidia-smi."""

    def write(body):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def test_a_known_gpu_gets_the_tables_figures_and_the_drivers_memory(program):
    probe = probe_gpus(program("echo 'NVIDIA H200, 9.0, 143000, 700.00, 700.00'"))
    assert probe.reason == ""
    assert probe.gpus[0].capability == 90
    assert not probe.gpus[0].is_throttled
    assert probe.gpu is not None
    assert probe.gpu.key == "h200"
    assert probe.gpu.memory_bytes == 143000 * 2**20


def test_a_lowered_power_limit_is_seen(program):
    row = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition, 12.0, 97887, 400.00, 600.00"
    assert probe_gpus(program(f"echo '{row}'")).gpus[0].is_throttled


def test_cells_that_the_driver_does_not_fill(program):
    probe = probe_gpus(program("echo 'NVIDIA GB10, 12.1, [N/A], [N/A], [N/A]'"))
    assert probe.gpus[0].memory is None
    assert not probe.gpus[0].is_throttled
    assert probe.gpu is not None
    assert probe.gpu.key == "dgx-spark"


def test_a_gpu_that_the_table_does_not_know(program):
    probe = probe_gpus(program("echo 'NVIDIA Quadro Whatever 17, 7.5, 8192, 100, 100'"))
    assert len(probe.gpus) == 1
    assert probe.gpu is None


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("echo 'NVIDIA-SMI has failed because' >&2; exit 9", "NVIDIA-SMI has failed"),
        ("exit 3", "exit code 3"),
        ("exit 0", "lists no GPU"),
        ("printf '\\377\\376'", "could not be run"),
        ("sleep 5", "did not answer"),
    ],
)
def test_what_goes_wrong_is_a_reason_and_never_an_error(program, body, part):
    probe = probe_gpus(program(body), timeout=0.5)
    assert probe.gpus == ()
    assert probe.gpu is None
    assert part in probe.reason


def test_no_program():
    assert "there is no" in probe_gpus("no-such-program-here").reason
