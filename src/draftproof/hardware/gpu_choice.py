"""From what an operator types to a GPU: by name, or by compute capability, memory and bandwidth."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from draftproof.errors import UsageError
from draftproof.hardware.amounts import parse_bytes, parse_rate
from draftproof.hardware.gpu import Figure, Gpu, LinkKind
from draftproof.hardware.gpu_table import GPUS, pcie

_FILLERS = {"nvidia", "geforce", "blackwell", "generation", "edition", "workstation", "tensor", "core", "gpu"}
"""Words in the names of GPUs that tell no two of them apart."""
_WORD = re.compile(r"[a-z]+|[0-9]+")
_CAPABILITY = re.compile(r"(?:sm_?)?([0-9]{1,2})(?:\.([0-9])|([0-9]))[af]?", re.IGNORECASE)
_NAMES_OFFERED = 4
CUSTOM = "custom"
USER = "as given on the command line"
ALTERNATIVE = "--sm 120 --memory 96GB --bandwidth 1.8TB/s"


@dataclass(frozen=True)
class GpuOptions:
    """The words on the command line that describe the GPU.

    Attributes:
        name: after `--gpu`; None when not given.
        capability: after `--sm`: "120", "12.0", "sm_120"; None when not given.
        memory: after `--memory`: "96GB"; None when not given.
        bandwidth: after `--bandwidth`: "1.8TB/s"; None when not given.
    """

    name: str | None = None
    capability: str | None = None
    memory: str | None = None
    bandwidth: str | None = None

    @property
    def given(self) -> bool:
        """Anything was said about the GPU."""
        return any((self.name, self.capability, self.memory, self.bandwidth))


def choose_gpu(options: GpuOptions) -> Gpu | None:
    """The GPU that the options describe; None when they say nothing.

    A name alone takes the table's figures; with a name, the other options replace single figures. Without a
    name, all three others are needed.

    Raises:
        UsageError: an unknown name, an amount that is none, or a description with a part missing.
    """
    if not options.given:
        return None
    if options.name:
        return _changed(find_gpu(options.name), options)
    missing = [
        option
        for option, value in (
            ("--sm", options.capability),
            ("--memory", options.memory),
            ("--bandwidth", options.bandwidth),
        )
        if not value
    ]
    if missing:
        raise UsageError(
            f"a GPU without --gpu NAME needs {' and '.join(missing)} too", f"For example {ALTERNATIVE}."
        )
    blank = Figure(0.0, USER)
    return _changed(Gpu(CUSTOM, "GPU", 0, blank, blank, pcie(5)), options)


def find_gpu(name: str, gpus: Iterable[Gpu] = GPUS) -> Gpu:
    """A GPU of the table by any of its names; case, separators and filler words do not matter.

    Raises:
        UsageError: no GPU has that name; the nearest names and the alternative are offered.
    """
    names = _names(gpus)
    gpu = names.get(_plain(name)) or names.get(_bare(name))
    if gpu is not None:
        return gpu
    near = get_close_matches(_plain(name), names, n=12, cutoff=0.5)
    keys = list(dict.fromkeys(names[match].key for match in near))[:_NAMES_OFFERED]
    nearest = f"Nearest: {', '.join(keys)}; or describe it" if keys else "Describe it"
    raise UsageError(f"--gpu {name[:60]!r} is no GPU that draftproof knows", f"{nearest}: {ALTERNATIVE}.")


def parse_capability(text: str) -> int:
    """A compute capability times ten: "12.0", "120", "sm_120" and "sm120a" are 120; "9.0" is 90.

    Raises:
        UsageError: it is none.
    """
    match = _CAPABILITY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--sm {text[:20]!r} is no compute capability", "Write it like 90, 12.0 or sm_120.")
    return int(match[1]) * 10 + int(match[2] or match[3])


def _changed(gpu: Gpu, options: GpuOptions) -> Gpu:
    """The same GPU with the figures that were given."""
    if options.capability:
        gpu = replace(gpu, capability=parse_capability(options.capability))
    if options.memory:
        gpu = replace(gpu, memory=Figure(parse_bytes(options.memory, "--memory"), USER))
    if options.bandwidth:
        rate = Figure(parse_rate(options.bandwidth, "--bandwidth"), USER)
        gpu = replace(gpu, bandwidth=rate, measured_bandwidth=None)
    if gpu.key == CUSTOM:
        assumed = Figure(gpu.link.all_reduce.value, "assumed: PCIe, since nothing was said about NVLink")
        link = replace(gpu.link, kind=LinkKind.PCIE, all_reduce=assumed)
        gpu = replace(gpu, title=f"{gpu.architecture} GPU", link=link)
    return gpu


def _names(gpus: Iterable[Gpu]) -> dict[str, Gpu]:
    """Every spelling of every name; a full name comes before a name that only lost its filler words."""
    full: dict[str, Gpu] = {}
    bare: dict[str, Gpu] = {}
    for gpu in gpus:
        for name in (gpu.key, gpu.title, *gpu.aliases):
            full.setdefault(_plain(name), gpu)
            bare.setdefault(_bare(name), gpu)
    return {**bare, **full}


def _words(name: str) -> list[str]:
    return _WORD.findall(name.lower())


def _plain(name: str) -> str:
    """Letters and digits only, without the maker's name."""
    return "".join(word for word in _words(name) if word not in ("nvidia", "geforce"))


def _bare(name: str) -> str:
    """As `_plain`, without words that tell nothing apart."""
    return "".join(word for word in _words(name) if word not in _FILLERS)
