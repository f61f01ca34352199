"""Where a chosen kernel is written, what it stands on, and whether it uses the GPU's own units."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

_LAYERS = "vllm/model_executor"
_ATTENTION = "vllm/v1/attention"
_GATES = ("is_supported", "_supports_current_device", "supports_compute_capability", "can_implement")
_LIBRARIES = ("flashinfer", "trtllm", "humming", "deepgemm", "deep_gemm")
_CONVERTS = ("marlin", "humming", "emulation", "w4a16", "triton")
"""Words in the names of kernels for 4-bit weights that convert them before they multiply."""


@dataclass(frozen=True)
class KernelSite:
    """A kernel's class in the source.

    Attributes:
        place: its `class` line.
        gate: the method that says on which GPUs it may run; None when the class has none of its own.
    """

    place: Place
    gate: Place | None

    @property
    def places(self) -> tuple[Place, ...]:
        """The gate first."""
        return (self.gate, self.place) if self.gate is not None else (self.place,)


def kernel_site(tree: SourceTree, name: str) -> KernelSite | None:
    """The class of a kernel by its name; None when there is none, or the name is no class's."""
    for folder in (_LAYERS, _ATTENTION):
        for file in tree.containing(folder, f"class {name}"):
            try:
                module = tree.syntax(file)
            except SourceError:
                continue
            for node in module.body:
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return KernelSite(Place(file, node.lineno), _gate(file, node))
    return None


def _gate(file: str, node: ast.ClassDef) -> Place | None:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name in _GATES:
            return Place(file, statement.lineno)
    return None


def libraries_of(name: str) -> tuple[str, ...]:
    """The libraries that a kernel is taken from, by its name: "flashinfer", "humming", "deep_gemm"."""
    folded = name.lower()
    found = {
        "flashinfer": "flashinfer" in folded or "trtllm" in folded,
        "humming": "humming" in folded,
        "deep_gemm": "deepgemm" in folded or "deep_gemm" in folded,
    }
    return tuple(library for library, is_used in found.items() if is_used)


def converts_weights(name: str) -> bool:
    """Whether a kernel for 4-bit weights converts them before it multiplies."""
    return any(word in name.lower() for word in _CONVERTS)
