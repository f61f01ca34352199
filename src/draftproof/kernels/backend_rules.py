"""Which backend of an op may run on a GPU, and in which order: the shipped tuning tables, as data.

A table is one file for one compute capability in `tuning/`; `tuning/portable.toml` serves every other one. It
holds, for each op, rules in order of preference; the first one whose conditions hold for a call wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import Any

PORTABLE = "portable"
FOLDER = "tuning"

PACKAGES: Mapping[str, str] = {
    "packed_linear": "packed_linear",
    "route": "routing",
    "experts_step": "experts_step",
    "experts_of_prompt": "experts_step",
    "gated_delta_decode": "gated_delta_decode",
    "decode_attention": "decode_attention",
    "decode_attention_selected": "decode_attention",
    "embed_inputs": "embedding",
    "enter_head": "embedding",
    "enter_chain": "embedding",
    "last_rows": "embedding",
    "sample_rows": "row_sampling",
    "sample_drafts": "row_sampling",
    "advance": "advance",
    "sample_and_advance": "advance",
}
"""Op (field of `select.StepKernels` and name of the function) to its folder below `draftproof.kernels`."""


class Backend(Enum):
    """What carries out an op; also the name of the module `kernels/<package>/<name>.py`."""

    REFERENCE = "reference"
    """The definition in plain torch: every op has it, a CPU uses nothing else."""
    TRITON = "triton"
    """Portable GPU kernels."""
    CUDA = "cuda"
    """CUDA C++ compiled at start, where Triton does not reach the hardware."""
    CUDA_SORTED = "cuda_sorted"
    """The same for many rows, sorted by what they need."""


@dataclass(frozen=True)
class BackendRule:
    """One line of a table.

    Attributes:
        backend: what runs.
        max_rows: most rows of a call; None for any number.
        formats: weight formats that it is for, by `WeightFormat.value`; empty for all.
        min_rows: fewest rows of a call.
    """

    backend: Backend
    max_rows: int | None = None
    formats: tuple[str, ...] = ()
    min_rows: int = 0

    @property
    def is_for_all_rows(self) -> bool:
        """Whether the number of rows does not matter."""
        return self.max_rows is None and not self.min_rows

    def holds(self, rows: int, weight_format: str | None) -> bool:
        """Whether the rule is for a call of so many rows and this weight format."""
        if rows < self.min_rows or (self.max_rows is not None and rows > self.max_rows):
            return False
        return not self.formats or weight_format in self.formats


@dataclass(frozen=True)
class TuningTable:
    """The rules for one compute capability.

    Attributes:
        name: of the file: "sm90", "portable".
        tested: where the choices were measured, in words; empty when on no such GPU.
        rules: by op, in order of preference.
    """

    name: str
    tested: str
    rules: Mapping[str, tuple[BackendRule, ...]]

    def of(self, op: str) -> tuple[BackendRule, ...]:
        """The rules of one op; Triton alone when the table does not name it."""
        return self.rules.get(op, (BackendRule(Backend.TRITON),))


def load_table(capability: int) -> TuningTable:
    """The table for a compute capability (90 for 9.0): its own file, else the portable one."""
    folder = files("draftproof.kernels").joinpath(FOLDER)
    own = folder.joinpath(f"sm{capability}.toml")
    name = f"sm{capability}" if own.is_file() else PORTABLE
    return parse_table(name, folder.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def parse_table(name: str, text: str) -> TuningTable:
    """A table from its text.

    Raises:
        ValueError: a backend or key that there is not.
    """
    content = tomllib.loads(text)
    tested = content.pop("tested", "")
    return TuningTable(name, str(tested), {op: _rules(rows) for op, rows in content.items()})


def rules_in_words(rules: Sequence[BackendRule]) -> str:
    """Backends in order of preference: "cuda up to 8 rows, then triton"."""
    return ", then ".join(_rule(rule) for rule in rules)


def _rules(rows: Sequence[Mapping[str, Any]]) -> tuple[BackendRule, ...]:
    rules = []
    for row in rows:
        unknown = row.keys() - {"backend", "max_rows", "min_rows", "formats"}
        if unknown:
            raise ValueError(f"a tuning rule has no key {sorted(unknown)[0]!r}")
        formats = tuple(row.get("formats", ()))
        rules.append(
            BackendRule(Backend(row["backend"]), row.get("max_rows"), formats, row.get("min_rows", 0))
        )
    return tuple(rules)


def _rule(rule: BackendRule) -> str:
    words = [rule.backend.value]
    if rule.formats:
        words.append(f"for {' and '.join(rule.formats)}")
    if rule.min_rows:
        words.append(f"from {rule.min_rows} rows")
    if rule.max_rows is not None:
        words.append(f"up to {rule.max_rows} rows")
    return " ".join(words)
