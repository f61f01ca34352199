"""Which kernels a device step of this engine chooses on a GPU, from the same tables as the engine reads."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.hardware.gpu import Gpu
from draftproof.kernels.backend_rules import PORTABLE, TuningTable, parse_table, rules_in_words
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree

FOLDER = "draftproof/kernels/tuning"
PROMPT_PRODUCTS = "; a prompt's rows are multiplied by torch, with weights unpacked at each use"


@dataclass(frozen=True)
class GpuKernels:
    """The table for one GPU.

    Attributes:
        file: where it stands.
        text: what stands there.
        table: what it means.
        gpu: for which GPU.
    """

    file: str
    text: str
    table: TuningTable
    gpu: Gpu

    def backend(self, op: str) -> Reading[str]:
        """The backends of an op, in order of preference."""
        words = rules_in_words(self.table.of(op))
        return found(words, f"the engine's {op} for the rows of a step{self._prompts(op)}", self._place(op))

    def valid(self, op: str) -> Reading[bool]:
        """Whether they were run on a GPU of this capability."""
        if self.table.tested:
            sentence = f"checked against its definition and timed on {self.table.tested}"
            return found(True, sentence, Place(self.file, self._line("tested")))
        return not_understood(
            f"portable kernels, which nobody has run on {self.gpu.architecture}: `draftproof doctor` on the "
            "machine compares them with their definitions",
            self._place(op),
        )

    def _prompts(self, op: str) -> str:
        """What a prompt's rows run on where a step's run on this op."""
        if op == "experts_step":
            return f"; a prompt's rows: {rules_in_words(self.table.of('experts_of_prompt'))}"
        return PROMPT_PRODUCTS if op == "packed_linear" else ""

    def _place(self, op: str) -> Place:
        return Place(self.file, self._line(f"[[{op}]]"))

    def _line(self, beginning: str) -> int:
        """Of the first line that begins so; the first line of all when none does."""
        lines = self.text.splitlines()
        return next((at for at, line in enumerate(lines, 1) if line.startswith(beginning)), 1)


def gpu_kernels(tree: SourceTree, gpu: Gpu) -> GpuKernels | None:
    """The table for a GPU's compute capability, or the portable one; None when this version has none.

    Raises:
        SourceError: the table cannot be read.
    """
    for name in (f"sm{gpu.capability}", PORTABLE):
        file = f"{FOLDER}/{name}.toml"
        if tree.has(file):
            text = tree.text(file)
            try:
                return GpuKernels(file, text, parse_table(name, text), gpu)
            except ValueError:
                return None
    return None
