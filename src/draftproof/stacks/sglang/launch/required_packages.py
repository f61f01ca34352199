"""What has to be installed for a planned command, from the version's own metadata."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Declared
from packaging.utils import canonicalize_name

from draftproof.stacks.launch_facts import Requirement
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack

_REASONS = {
    "torch": "everything runs on it; its CUDA version decides which GPUs it knows",
    "flashinfer-python": "attention, FP4 and FP8 products, experts and sampling are taken from it",
    "flashinfer-cubin": "kernels that flashinfer would otherwise download or build at the first request",
    "sgl-kernel": "SGLang's own kernels",
    "sglang-kernel": "SGLang's own kernels",
    "sgl-deep-gemm": "FP8 products on Hopper and datacentre Blackwell",
    "nvidia-cutlass-dsl": "kernels that are built on the machine",
}
BUILT_ON_THE_MACHINE = 120
"""From this compute capability on some kernels come as source and are built at the first start."""


def requirements(stack: Stack, situation: Situation) -> tuple[Requirement, ...]:
    """Packages in the order of the metadata, then the compiler when kernels are built on the machine."""
    return (*_packages(stack), *_compiler(situation))


def _packages(stack: Stack) -> Iterator[Requirement]:
    for text in stack.requires:
        try:
            declared = Declared(text)
        except InvalidRequirement:
            continue
        name = canonicalize_name(declared.name)
        if name not in _REASONS or (declared.marker is not None and "extra" in str(declared.marker)):
            continue
        installed = stack.installed_version(name)
        present = None if stack.beside is None else installed is not None
        if present and installed is not None and not declared.specifier.contains(installed, prereleases=True):
            present = False
        extras = f"[{','.join(sorted(declared.extras))}]" if declared.extras else ""
        yield Requirement(
            name=name,
            version=str(declared.specifier),
            reason=_REASONS[name],
            present=present,
            command=f"pip install '{name}{extras}{declared.specifier}'",
        )


def _compiler(situation: Situation) -> Iterator[Requirement]:
    if situation.gpu is not None and situation.gpu.capability >= BUILT_ON_THE_MACHINE:
        yield Requirement(
            name="nvcc",
            version=">=12.9",
            reason=f"flashinfer builds kernels for {situation.gpu.architecture} at the first start",
            present=None,
            command="nvcc --version",
        )
