"""What SGLang's kernels are taken from: which distribution brings a module, and whether it is there."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.stacks.launch_facts import Requirement
from draftproof.stacks.packages import Presence, package, required_version
from draftproof.stacks.place import Place
from draftproof.stacks.stack import Stack

_OTHER_PLATFORMS = ("aiter", "torch_npu", "sgl_kernel_npu", "intel_extension", "habana", "mori", "mindspore")
FLASHINFER = "flashinfer-python"
CUBIN = "flashinfer-cubin"
BUILT = "flashinfer-jit-cache"
_DISTRIBUTIONS = {
    "flashinfer": (FLASHINFER,),
    "deep_gemm": ("sgl-deep-gemm", "sgl-kernel"),
    "sgl_kernel": ("sglang-kernel", "sgl-kernel"),
    "flash_attn": ("flash-attn-4",),
    "cutlass": ("nvidia-cutlass-dsl",),
}
"""Module -> distributions that bring it, newest name first; older sgl-kernel wheels carried DeepGEMM."""
_BY_BACKEND = (
    (("flashinfer_cutedsl", "cutedsl"), ("flashinfer", "cutlass")),
    (("flashinfer", "trtllm", "FlashInfer"), ("flashinfer",)),
    (("deep_gemm", "deepgemm"), ("deep_gemm",)),
    (("marlin", "cutlass", "fa3"), ("sgl_kernel",)),
    (("fa4",), ("flash_attn",)),
)
"""Parts of a backend's name -> modules that it is taken from; the first that fits counts."""
_PREBUILT = ("flashinfer_trtllm", "trtllm_mha", "trtllm_mla")
"""Kernels of FlashInfer that come compiled, in flashinfer-cubin or by download; nvcc builds the others."""


@dataclass(frozen=True)
class Packages:
    """The distributions beside a stack, or those that its metadata asks for."""

    stack: Stack

    def can_import(self, module: str) -> bool | None:
        """Whether a module of another project is there; what is not known to be absent counts as there."""
        top = module.partition(".")[0]
        if top.startswith(_OTHER_PLATFORMS):
            return False
        names = _DISTRIBUTIONS.get(top)
        if names is None or self.stack.beside is None:
            return True
        return any(package(self.stack, name).presence is Presence.INSTALLED for name in names)

    def needs(self, backend: str, places: tuple[Place, ...] = ()) -> tuple[Requirement, ...]:
        """What a backend is taken from.

        Args:
            backend: its name in the stack.
            places: the selector's lines.
        """
        modules = next((found for marks, found in _BY_BACKEND if any(m in backend for m in marks)), ())
        needs = [self._distribution(module, backend, places) for module in modules]
        if "flashinfer" in modules and not self._has_built(backend):
            reason = (
                f"FlashInfer builds {backend} at the first start, unless {BUILT} is installed"
                if backend not in _PREBUILT
                else f"FlashInfer downloads {backend} at the first start, unless {CUBIN} is installed"
            )
            needs.append(
                Requirement(
                    "nvcc", "", reason, None, f"install a CUDA toolkit, or pip install {BUILT}", places
                )
            )
        return tuple(needs)

    def _distribution(self, module: str, backend: str, places: tuple[Place, ...]) -> Requirement:
        names = _DISTRIBUTIONS[module]
        asked = {name: required_version(self.stack, name) for name in names}
        name = next((each for each in names if asked[each] is not None), names[0])
        version = asked[name] or ""
        present = None if self.stack.beside is None else self.can_import(module)
        reason = f"{backend} is taken from its module {module}"
        return Requirement(name, version, reason, present, f"pip install '{name}{version}'", places)

    def _has_built(self, backend: str) -> bool:
        bringing = (CUBIN, BUILT) if backend in _PREBUILT else (BUILT,)
        if self.stack.beside is not None:
            return any(self.stack.installed_version(name) is not None for name in bringing)
        return any(required_version(self.stack, name) is not None for name in bringing)
