"""Compilation of CUDA sources: what decides a cubin, its cache, and errors. NVRTC itself is played."""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from draftproof.errors import EngineFault, EnvironmentProblem
from draftproof.kernels.cuda import compiler
from draftproof.kernels.cuda.compiler import Compilation, cache_folder, compile_cubin, describe, is_available
from draftproof.kernels.cuda.launch import as_parameters


@dataclass
class PlayedNvrtc:
    """Answers as NVRTC does; `fault` makes every compilation fail with it."""

    fault: str = ""
    compiled: list[bytes] = field(default_factory=list)

    def nvrtcVersion(self) -> tuple[int, int, int]:
        return 0, 13, 0

    def nvrtcCreateProgram(self, source: bytes, *_: Any) -> tuple[int, bytes]:
        return 0, source

    def nvrtcCompileProgram(self, program: bytes, *_: Any) -> tuple[int]:
        self.compiled.append(program)
        return (int(bool(self.fault)),)

    def nvrtcGetProgramLogSize(self, _: bytes) -> tuple[int, int]:
        return 0, len(self.fault)

    def nvrtcGetProgramLog(self, _: bytes, log: bytes) -> None:
        ctypes.memmove(log, self.fault.encode(), len(self.fault))

    def nvrtcGetCUBINSize(self, _: bytes) -> tuple[int, int]:
        return 0, 5

    def nvrtcGetCUBIN(self, _: bytes, cubin: bytes) -> None:
        ctypes.memmove(cubin, b"cubin", 5)

    def nvrtcDestroyProgram(self, _: bytes) -> None:
        pass


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> PlayedNvrtc:
    played = PlayedNvrtc()
    monkeypatch.setattr(compiler, "bindings", lambda module: played)
    return played


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text('extern "C" __global__ void nothing() {}')
    return path


def described(source: Path, **changes: Any) -> Compilation:
    named = {"architecture": "sm_90a", "definitions": (("ROWS", 4),)} | changes
    return describe(source, named["architecture"], named["definitions"])


def test_a_second_start_compiles_nothing(nvrtc: PlayedNvrtc, source: Path, tmp_path: Path) -> None:
    assert compile_cubin(described(source), tmp_path / "cache") == b"cubin"
    assert compile_cubin(described(source), tmp_path / "cache") == b"cubin"
    assert len(nvrtc.compiled) == 1


def test_whatever_decides_a_cubin_is_in_its_key(nvrtc: PlayedNvrtc, source: Path) -> None:
    first = described(source)
    others = [described(source, architecture="sm_120a"), described(source, definitions=(("ROWS", 8),))]
    others.append(Compilation(first.source, first.name, (), first.options, first.compiler))
    others.append(Compilation(first.source, first.name, first.headers, first.options, "13.1"))
    source.write_text("// changed")
    others.append(described(source))
    assert len({each.key for each in (first, *others)}) == 6


def test_shared_device_code_can_be_included(nvrtc: PlayedNvrtc, source: Path) -> None:
    assert {"matrix.cuh", "memory.cuh", "numbers.cuh"} <= {name for name, _ in described(source).headers}


def test_a_cache_that_cannot_be_written_is_no_error(nvrtc: PlayedNvrtc, source: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert compile_cubin(described(source), blocked / "cache") == b"cubin"


def test_an_error_names_source_options_and_first_message(
    nvrtc: PlayedNvrtc, source: Path, tmp_path: Path
) -> None:
    nvrtc.fault = "kernel.cu(1): warning: x\nkernel.cu(3): error: expected a ;\n1 error"
    with pytest.raises(EngineFault, match=r"kernel\.cu does not compile .*ROWS=4: .*expected a ;") as caught:
        compile_cubin(described(source), tmp_path / "cache")
    assert "1 error" in "".join(caught.value.__notes__)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> SimpleNamespace:
        raise ImportError(f"No module named {name}")

    monkeypatch.setattr(importlib, "import_module", absent)
    is_available.cache_clear()
    with pytest.raises(EnvironmentProblem, match=r"cuda-bindings.*gpu extra"):
        compiler.bindings("nvrtc")
    assert not is_available()
    is_available.cache_clear()


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DRAFTPROOF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "draftproof" / "kernels"
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own" / "kernels"


def test_arguments_are_passed_by_their_types() -> None:
    tensor = torch.zeros(2)
    values, types = as_parameters((tensor, 3, 0.5, None))
    assert values == (tensor.data_ptr(), 3, 0.5, 0)
    assert types == (ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_void_p)
