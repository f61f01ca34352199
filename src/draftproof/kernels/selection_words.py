"""A choice of kernels in words, for `doctor`, `bench` and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftproof.kernels.backend_rules import BackendRule
from draftproof.kernels.select import SelectionReport


def rules_in_words(rules: Sequence[BackendRule]) -> str:
    """Backends in order of preference: "cuda up to 8 rows, then triton"."""
    return ", then ".join(_rule(rule) for rule in rules)


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


def _rule(rule: BackendRule) -> str:
    words = [rule.backend.value]
    if rule.formats:
        words.append(f"for {' and '.join(rule.formats)}")
    if rule.max_rows is not None:
        words.append(f"up to {rule.max_rows} rows")
    return " ".join(words)
