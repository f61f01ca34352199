"""What has to be installed for a chosen kernel of vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.launch_facts import Requirement
from draftproof.stacks.packages import package, required_version
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.definitions import find_definition

HELPERS = "vllm/utils/flashinfer.py"
IMPORTS = "vllm/utils/import_utils.py"
CUBIN = "flashinfer-cubin"
_DISTRIBUTIONS = {"flashinfer": "flashinfer-python", "humming": "humming-kernels"}
_QUESTIONS = {
    "flashinfer": (HELPERS, "has_flashinfer"),
    "humming": (IMPORTS, "has_humming"),
    "deep_gemm": (IMPORTS, "has_deep_gemm"),
}


def needs_of(stack: Stack, libraries: tuple[str, ...], kernel: str) -> tuple[Requirement, ...]:
    """What a kernel needs beside the stack.

    Args:
        stack: in whose metadata and environment it is looked for.
        libraries: that the kernel is taken from.
        kernel: its name, for the reasons.
    """
    return tuple(need for library in libraries for need in _needs(stack, library, kernel))


def _needs(stack: Stack, library: str, kernel: str) -> Iterator[Requirement]:
    places = _question(stack.tree, library)
    distribution = _DISTRIBUTIONS.get(library)
    if distribution is not None:
        asked = required_version(stack, distribution) or ""
        present = None if stack.beside is None else package(stack, distribution).counts_as_present
        reason = f"{kernel} is taken from it"
        yield Requirement(
            distribution, asked, reason, present, f"pip install '{distribution}{asked}'", places
        )
    if library == "flashinfer" and not _has_built_kernels(stack):
        reason = f"{kernel} is built on first use, unless {CUBIN} is installed"
        command = f"pip install {CUBIN}, or install a CUDA toolkit and ninja"
        yield Requirement("nvcc and ninja", "", reason, None, command, places)
    elif library in ("humming", "deep_gemm"):
        reason = f"{kernel} is built on first use"
        yield Requirement("nvcc", "", reason, None, "install a CUDA toolkit", places)


def _has_built_kernels(stack: Stack) -> bool:
    if stack.beside is not None:
        return stack.installed_version(CUBIN) is not None
    return required_version(stack, CUBIN) is not None


def _question(tree: SourceTree, library: str) -> tuple[Place, ...]:
    file, name = _QUESTIONS[library]
    try:
        defined = find_definition(tree, file, name)
    except SourceError:
        return ()
    return (defined.place,) if defined is not None else ()
