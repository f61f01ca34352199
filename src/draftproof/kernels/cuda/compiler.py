"""From a .cu file to a cubin: NVRTC, with a cache on disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import EngineFault, EnvironmentProblem

HEADER_FOLDER = Path(__file__).parent
"""Its .cuh files, and those beside a source, can be included by name; NVRTC gets them as text, so that no
include path is searched."""

PACKAGE_REMEDY = "install draftproof's gpu extra (cuda-bindings 13), or choose the portable kernels"


@dataclass(frozen=True)
class Compilation:
    """Everything that decides a cubin.

    Attributes:
        source: CUDA C++ text.
        name: of the source, for messages.
        headers: (name, text) of what it may include.
        options: of the compiler.
        compiler: version of NVRTC.
    """

    source: str
    name: str
    headers: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    compiler: str

    @property
    def key(self) -> str:
        """A digest of all of it: the cubin's file name in the cache."""
        digest = hashlib.sha256()
        for part in (self.source, *(text for pair in self.headers for text in pair), *self.options):
            digest.update(f"{len(part)}:".encode() + part.encode())
        digest.update(self.compiler.encode())
        return digest.hexdigest()


def cache_folder() -> Path:
    """Where cubins are kept: kernels/ in `DRAFTPROOF_CACHE`, else in draftproof/ of `XDG_CACHE_HOME` or
    ~/.cache."""
    own = os.environ.get("DRAFTPROOF_CACHE")
    if own:
        return Path(own) / "kernels"
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "draftproof" / "kernels"


def bindings(module: str) -> Any:
    """A module of cuda-bindings ("driver" or "nvrtc").

    Raises:
        EnvironmentProblem: the package is not installed.
    """
    try:
        return importlib.import_module(f"cuda.bindings.{module}")
    except ImportError as problem:
        raise EnvironmentProblem(f"CUDA kernels need cuda-bindings: {problem}", PACKAGE_REMEDY) from problem


@functools.cache
def is_available() -> bool:
    """Whether cuda-bindings and NVRTC can be loaded."""
    try:
        return bool(nvrtc_version())
    except (EnvironmentProblem, OSError, RuntimeError):
        return False


def nvrtc_version() -> str:
    """Such as "13.0"."""
    nvrtc = bindings("nvrtc")
    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise EnvironmentProblem(f"NVRTC does not answer: {status}", PACKAGE_REMEDY)
    return f"{major}.{minor}"


def describe(path: Path, architecture: str, definitions: tuple[tuple[str, int], ...]) -> Compilation:
    """The compilation of one file.

    Args:
        path: of the .cu file.
        architecture: such as "sm_90a".
        definitions: macros, name and value.
    """
    files = sorted({*HEADER_FOLDER.glob("*.cuh"), *path.parent.glob("*.cuh")})
    headers = tuple((header.name, header.read_text()) for header in files)
    options = (f"--gpu-architecture={architecture}", "-std=c++17")
    macros = tuple(f"-D{name}={value}" for name, value in definitions)
    return Compilation(path.read_text(), path.name, headers, options + macros, nvrtc_version())


def compile_cubin(compilation: Compilation, folder: Path) -> bytes:
    """The cubin, from the cache in `folder` or compiled and put there.

    A cache that cannot be written is no error: the kernel is compiled at every start then.

    Raises:
        EngineFault: the source does not compile; its notes hold the compiler's log.
    """
    kept = folder / f"{compilation.key}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    cubin = _compile(compilation)
    with contextlib.suppress(OSError):
        _write_atomically(kept, cubin)
    return cubin


def _write_atomically(path: Path, content: bytes) -> None:
    """Processes that start together may all write; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(temporary).replace(path)


def _compile(compilation: Compilation) -> bytes:
    nvrtc = bindings("nvrtc")
    names = [name.encode() for name, _ in compilation.headers]
    texts = [text.encode() for _, text in compilation.headers]
    status, program = nvrtc.nvrtcCreateProgram(
        compilation.source.encode(), compilation.name.encode(), len(names), texts, names
    )
    if int(status) != 0:
        raise EngineFault(f"NVRTC cannot take {compilation.name}: {status}")
    options = [option.encode() for option in compilation.options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        raise _compile_error(nvrtc, program, compilation)
    size = nvrtc.nvrtcGetCUBINSize(program)[1]
    cubin = b" " * int(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


def _compile_error(nvrtc: Any, program: Any, compilation: Compilation) -> EngineFault:
    size = nvrtc.nvrtcGetProgramLogSize(program)[1]
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode(errors="replace").rstrip("\0 \n")
    first = next((line for line in text.splitlines() if "error" in line), "no message")
    options = " ".join(compilation.options)
    error = EngineFault(f"{compilation.name} does not compile with {options}: {first}")
    error.add_note(text)
    return error
