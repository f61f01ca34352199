"""Small stacks for tests: the files that make a tree count as SGLang or vLLM, on disk and in wheels."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

SGLANG_FILES = {
    "sglang/__init__.py": "",
    "sglang/_version.py": "__version__ = version = '0.5.12'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/server_args.py": "class ServerArgs:\n    page_size = 1\n",
    "sglang/srt/models/__init__.py": "",
    "sglang/srt/models/qwen3_5_mtp.py": "class Qwen3_5ForCausalLMMTP:\n    pass\n",
}
VLLM_FILES = {
    "vllm/__init__.py": "",
    "vllm/engine/arg_utils.py": "class EngineArgs:\n    pass\n",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/models/__init__.py": "",
    "vllm/model_executor/models/registry.py": "_MODELS = {}\n",
}
REQUIREMENTS = ("flashinfer-python==0.4.0", 'torch>=2.8; platform_machine == "x86_64"')


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes text files below a folder; returns the folder."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def metadata_text(name: str, version: str) -> str:
    """METADATA with two requirements."""
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {item}" for item in REQUIREMENTS)]
    return "\n".join(["Metadata-Version: 2.4", *lines, "", "Version: 9.9.9 in the description is not it"])


def unpacked_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """What pip or unzip makes of a wheel: the files, and a .dist-info folder with METADATA and RECORD."""
    return write_files(folder, wheel_files(name, version, files))


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str], **more: bytes) -> Path:
    """A wheel with the files, a large binary that is no source, and further members by their names."""
    file = folder / f"{name}-{version}-cp38-abi3-manylinux_2_31_x86_64.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/_C.abi3.so", _noise(3 << 20), zipfile.ZIP_STORED)
        for path, text in wheel_files(name, version, files).items():
            archive.writestr(path, text)
        archive.writestr(f"{name}/_D.abi3.so", _noise(3 << 20), zipfile.ZIP_STORED)
        for path, content in more.items():
            archive.writestr(path, content)
    return file


def write_source_archive(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A .tar.gz as SGLang's: the package below NAME-VERSION/python, PKG-INFO at the top."""
    file = folder / f"{name}-{version}.tar.gz"
    top = f"{name}-{version}"
    contents = {f"{top}/python/{path}": text for path, text in files.items()}
    contents[f"{top}/PKG-INFO"] = metadata_text(name, version)
    contents[f"{top}/csrc/kernel.cu"] = "not a Python file"
    with tarfile.open(file, "w:gz") as archive:
        for path, text in contents.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return file


def wheel_files(name: str, version: str, files: Mapping[str, str]) -> dict[str, str]:
    """The text members of a wheel, RECORD included."""
    info = f"{name}-{version}.dist-info"
    everything = {**files, f"{info}/METADATA": metadata_text(name, version)}
    rows = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in everything.items()]
    rows += [f"{name}/_C.abi3.so,,", f"{info}/RECORD,,", ""]
    return {**everything, f"{info}/RECORD": "\n".join(rows)}


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@functools.cache
def _noise(size: int) -> bytes:
    """Bytes that do not compress and are the same each time."""
    return hashlib.shake_128(b"noise").digest(size)
