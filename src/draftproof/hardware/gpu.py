"""A GPU as data: what decides whether a model fits, which kernels it may use, and how fast it can be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NATIVE_FP8 = 89
"""Compute capability from which tensor cores multiply FP8."""
NATIVE_FP4 = 100
"""Compute capability from which tensor cores multiply FP4; older GPUs convert the weights first."""


@dataclass(frozen=True)
class Figure:
    """A number and where it comes from.

    Attributes:
        value: in base units: bytes, bytes per second, operations per second, seconds.
        source: "vendor data sheet", or what was measured or read, in a few words.
    """

    value: float
    source: str


class LinkKind(Enum):
    """What GPUs of one machine talk through."""

    NVLINK = "NVLink"
    PCIE = "PCIe"


@dataclass(frozen=True)
class GpuLink:
    """The connection between GPUs of one machine.

    Attributes:
        kind: NVLink or PCIe.
        words: as people say it: "NVLink 4", "PCIe 5.0 x16".
        bandwidth: bytes per second in one direction, of one GPU.
        all_reduce: seconds that one all-reduce of one token's hidden state takes inside a CUDA graph.
    """

    kind: LinkKind
    words: str
    bandwidth: float
    all_reduce: Figure


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        key: as typed after `--gpu`: "rtx-pro-6000".
        title: for reports: "RTX PRO 6000 Blackwell Workstation".
        capability: compute capability times ten: 90, 120.
        memory: bytes that the driver reports, or that the vendor promises.
        bandwidth: peak bytes per second of its memory.
        link: to other GPUs of the same machine.
        measured_bandwidth: bytes per second that reading reached; None when nobody measured it here.
        bf16: dense BF16 operations per second; None when not known.
        fp8: dense FP8 operations per second; None when not known or not native.
        fp4: dense FP4 operations per second; None when not known or not native.
        aliases: further names, as typed or as nvidia-smi prints them.
    """

    key: str
    title: str
    capability: int
    memory: Figure
    bandwidth: Figure
    link: GpuLink
    measured_bandwidth: Figure | None = None
    bf16: Figure | None = None
    fp8: Figure | None = None
    fp4: Figure | None = None
    aliases: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """Its compute capability as kernels are named after it: "SM120"."""
        return f"SM{self.capability}"

    @property
    def has_native_fp8(self) -> bool:
        """Tensor cores multiply FP8."""
        return self.capability >= NATIVE_FP8

    @property
    def has_native_fp4(self) -> bool:
        """Tensor cores multiply FP4; otherwise 4-bit weights are converted before they are used."""
        return self.capability >= NATIVE_FP4

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        return int(self.memory.value)

    @property
    def reachable_bandwidth(self) -> Figure:
        """What a prediction divides by: the measured reading where there is one, else the peak."""
        return self.measured_bandwidth or self.bandwidth
