"""What the demo shows while it works: links as lines, answers as text, figures as one table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.cli.native_engine import NativeEngine
from draftproof.evidence import ChainReport, LinkReport
from draftproof.evidence.printable import printable
from draftproof.evidence.terminal_parts import verdict_text
from draftproof.links.function import Comparison
from draftproof.links.running_engine import DraftCounts, Generated
from draftproof.links.subject import subject_of

PROMPT_LINES = 3
ANSWER_LINES = 8
QUIET = "dim"


class ComparisonView:
    """Prints the story of a demo.

    Args:
        console: where to.
        quiet: print nothing (the caller prints a report instead).
    """

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        if quiet:
            console.quiet = True

    def opening(self, checkpoint: Checkpoint) -> None:
        """What this is about."""
        subject = subject_of(checkpoint)
        size = sum(entry.nbytes for entry in checkpoint.inventory.tensors.values()) / 1e6
        self._console.print(Text.assemble(("draftproof demo", "bold"), "  ", subject.name))
        count = len(checkpoint.inventory.tensors)
        self._console.print(Text(f"{subject.architecture}, {count} tensors, {size:.1f} MB", style=QUIET))
        self._console.print()

    def link(self, report: LinkReport) -> None:
        """A link as one line."""
        link = report.link
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text(f"{link.number} {link.value:<8}", style="bold"),
            verdict_text(self._console, report.verdict),
            Text(report.summary),
        )
        self._console.print(grid)

    def engine_ready(self, engine: NativeEngine, seconds: float) -> None:
        """The engine is loaded."""
        report = engine.built.report
        place = f"{engine.device}"
        if engine.device == "cpu":
            place = f"the CPU, {engine.built.threads} thread{'s' if engine.built.threads > 1 else ''}"
        loaded = f"loaded {report.taken} tensors in {seconds:.1f} s"
        text = f"  {loaded}, running on {place}, K = {engine.draft_tokens}"
        self._console.print(Text(text, style=QUIET))

    def answers(self, comparisons: Sequence[Comparison]) -> None:
        """One prompt, answered with every sampling: its end, one answer, and the figures of both arms.

        The last answer is shown; greedy text of a small model soon repeats itself, sampled text reads better.
        """
        prompt = comparisons[0].prompt
        self._console.print()
        self._console.print(
            Text.assemble((prompt.name, "bold"), f"  {prompt.kind}", (f"  {prompt.source}", QUIET))
        )
        self._indented(_excerpt(prompt.text, PROMPT_LINES, from_end=True, style=QUIET))
        self._indented(_excerpt(comparisons[-1].speculative.text, ANSWER_LINES, from_end=False, style=""))
        for comparison in comparisons:
            line = Text.assemble(f"{_sampling(comparison):<15} ", _same(comparison), _figures(comparison))
            self._indented(line)

    def _indented(self, text: Text) -> None:
        self._console.print(Padding(text, (0, 0, 0, 2)))

    def table(self, comparisons: Sequence[Comparison]) -> None:
        """All figures."""
        table = Table(box=None, pad_edge=False, header_style=QUIET)
        table.add_column("prompt", no_wrap=True)
        for name in ("T", "plain", "NEXTN", "ratio", "AL"):
            table.add_column(name, justify="right", no_wrap=True)
        positions = max(len(pair.speculative.drafts.proposed) for pair in comparisons)
        for position in range(positions):
            table.add_column(f"@{position + 1}", justify="right", no_wrap=True)
        table.add_column("text")
        for pair in comparisons:
            table.add_row(*_row(pair.prompt.name, [pair], positions))
        for kind in dict.fromkeys(pair.prompt.kind for pair in comparisons):
            table.add_row(
                *_row(f"all {kind}", [pair for pair in comparisons if pair.prompt.kind == kind], positions),
                style="bold",
            )
        self._console.print()
        self._console.print(table)
        legend = "tokens/s of this run; AL: tokens per verify pass; @n: drafts accepted at position n"
        self._console.print(Text(legend, style=QUIET))
        self._console.print()

    def closing(self, chain: ChainReport) -> None:
        """The verdict."""
        self._console.print()
        self._console.print(Text.assemble(verdict_text(self._console, chain.verdict), "  ", chain.summary))
        self._console.print(Text("This does not prove", style=QUIET))
        for clause in chain.does_not_prove:
            self._indented(Text(f"- {clause}", style=QUIET))
        self._console.print(
            Text("Full evidence: draftproof demo --json, or draftproof verify tiny --run", style=QUIET)
        )


def _row(name: str, pairs: Sequence[Comparison], positions: int) -> list[str]:
    temperatures = {pair.sampling.temperature for pair in pairs}
    plain = _speed([pair.plain for pair in pairs])
    speculative = _speed([pair.speculative for pair in pairs])
    counts = sum((pair.speculative.drafts for pair in pairs), DraftCounts(0, (), ()))
    rates = [f"{rate:.0%}" for rate in counts.rates]
    same = sum(pair.difference is None for pair in pairs)
    return [
        name,
        f"{temperatures.pop():g}" if len(temperatures) == 1 else "",
        f"{plain:.0f}",
        f"{speculative:.0f}",
        f"{speculative / plain:.2f}x" if plain else "",
        f"{counts.accept_length:.2f}",
        *rates,
        *[""] * (positions - len(rates)),
        "same" if same == len(pairs) else f"{same}/{len(pairs)} same",
    ]


def _speed(answers: Sequence[Generated]) -> float:
    """Tokens per second of several answers together; the first token of each belongs to its prompt."""
    seconds = sum(answer.seconds for answer in answers)
    return sum(max(len(answer.token_ids) - 1, 0) for answer in answers) / seconds if seconds else 0.0


def _same(comparison: Comparison) -> Text:
    if comparison.difference is None:
        return Text("same text", style="green")
    if comparison.difference.is_near_tie:
        return Text(f"near-tie at token {comparison.difference.index}", style="yellow")
    return Text(f"text differs from token {comparison.difference.index} on", style="bold red")


def _sampling(comparison: Comparison) -> str:
    temperature = comparison.sampling.temperature
    return "greedy" if temperature == 0 else f"temperature {temperature:g}"


def _figures(comparison: Comparison) -> Text:
    plain, speculative = comparison.plain, comparison.speculative
    return Text(
        f", {plain.tokens_per_second:.0f} -> {speculative.tokens_per_second:.0f} tokens/s, "
        f"accept length {speculative.drafts.accept_length:.2f}",
        style=QUIET,
    )


def _excerpt(text: str, lines: int, from_end: bool, style: str) -> Text:
    rows = printable_lines(text)
    shown = rows[-lines:] if from_end else rows[:lines]
    cut = len(rows) > lines
    if cut:
        shown = ["…", *shown] if from_end else [*shown, "…"]
    return Text("\n".join(shown), style=style)


def printable_lines(text: str) -> list[str]:
    """Lines of a model's or a user's text that are safe on a terminal."""
    return [printable(line) for line in text.expandtabs(4).strip("\n").splitlines()] or [""]
