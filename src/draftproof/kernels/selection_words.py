"""A choice of kernels in words, for `doctor`, `bench` and errors."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.kernels.backend_rules import rules_in_words
from draftproof.kernels.select import SelectionReport


def origin_in_words(report: SelectionReport) -> str:
    """Where the choice comes from and whether anybody measured it."""
    if not report.table:
        return "every op by its definition"
    tested = f"measured on {report.tested}" if report.tested else "not tested on such a GPU"
    return f"table {report.table}, {tested}"


def selection_lines(report: SelectionReport) -> Iterator[str]:
    """The whole choice, a line an op, then what was demoted."""
    yield f"kernels on {report.place} ({origin_in_words(report)}):"
    for op, rules in report.rules.items():
        yield f"  {op:<26} {rules_in_words(rules)}"
    for demotion, calls in report.demotions.counts.items():
        yield (
            f"  DEMOTED {demotion.op}: {demotion.backend.value}: {demotion.reason} ({calls} "
            f"{'call' if calls == 1 else 'calls'})"
        )
