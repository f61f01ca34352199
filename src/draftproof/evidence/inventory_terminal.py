"""``draftproof inspect`` on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftproof.evidence.inventory import FoundTensors, HeadInventory, Inventory, TensorFacts
from draftproof.evidence.quantities import count_text, listing, size_text
from draftproof.evidence.terminal_parts import (
    QUIET,
    heading,
    indented,
    line_character,
    pairs,
    print_note,
    section,
)

WHOLE_BELOW = 10**12
"""Larger whole numbers are shown as floating point."""
_PART_TITLES = {"target": "target", "head": "MTP head", "vision": "vision tower", "other": "other"}


def print_inventory(console: Console, inventory: Inventory) -> None:
    """Prints everything that is known about a checkpoint."""
    console.print(heading("draftproof inspect", inventory.subject))
    console.print()
    console.print(indented(_facts(inventory), 2))
    console.print()
    console.print(section(console, Text("MTP head", style="bold")))
    console.print(indented(_head(inventory.head), 2))
    if inventory.groups:
        console.print()
        console.print(section(console, Text("Precision, read from the tensors", style="bold")))
        console.print(indented(_groups(console, inventory), 2))
    if inventory.anomalies:
        console.print()
        console.print(section(console, Text("Worth a look", style="bold")))
        for note in inventory.anomalies:
            print_note(console, note, indent=2)
    console.print()
    verdict = f"These are facts, not a verdict: draftproof verify {inventory.subject.name}"
    console.print(Text(verdict, style=QUIET), soft_wrap=True)


def print_tensors(console: Console, found: FoundTensors) -> None:
    """Prints tensors and the figures of their values."""
    console.print(heading("draftproof inspect", found.subject))
    for tensor in found.shown:
        console.print()
        console.print(section(console, Text(tensor.name, style="bold")))
        console.print(indented(_tensor(tensor), 2))
    rest = found.total - len(found.shown)
    if rest > 0:
        console.print()
        console.print(Text(f"and {count_text(rest, 'more tensor')} with '{found.part}'", style=QUIET))


def _tensor(tensor: TensorFacts) -> Table:
    table = pairs()
    table.add_row("stored", f"{tensor.dtype} {list(tensor.shape)}, {size_text(tensor.size)}")
    table.add_row("in", Text(f"{tensor.file}, from byte {tensor.start:,}"))
    if tensor.values_of:
        table.add_row("values", tensor.values_of)
    for name, value in tensor.figures:
        whole = float(value).is_integer() and abs(value) < WHOLE_BELOW
        table.add_row(name, f"{int(value):,}" if whole else f"{value:.6g}")
    return table


def _facts(inventory: Inventory) -> Table:
    table = pairs()
    if inventory.family:
        table.add_row("family", f"{inventory.family} (model_type {inventory.model_type})")
    for label, value in inventory.dimensions:
        table.add_row(label, value)
    files = f"{count_text(inventory.files, 'file')}, {size_text(inventory.size)}"
    table.add_row("weights", f"{files}, {count_text(inventory.tensors, 'tensor')}")
    for line in inventory.quantization:
        table.add_row("config says", Text(line))
    return table


def _head(head: HeadInventory) -> Table:
    table = pairs()
    declared = "nothing"
    if head.declared_layers is not None:
        where = f" ({head.declared_at.field})" if head.declared_at else ""
        declared = f"{count_text(head.declared_layers, 'layer')}{where}"
    table.add_row("declared", Text(declared))
    expected = "" if head.expected is None else f" of {head.expected:,}"
    present = f"{head.present:,}{expected} tensors" + (f", {head.layout}" if head.layout else "")
    table.add_row("present", present)
    if head.tensors:
        scales = head.tensors - head.present
        with_scales = f" with {count_text(scales, 'scale')}" if scales > 0 else ""
        table.add_row("size", f"{size_text(head.size)}{with_scales}, in {listing(head.files, 2)}")
    return table


def _groups(console: Console, inventory: Inventory) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(title, style=QUIET) for title in ("", "module", "stored as", "tensors", "size")))
    part = ""
    for group in inventory.groups:
        title = _PART_TITLES[group.part] if group.part != part else ""
        part = group.part
        table.add_row(
            Text(title, style="bold"),
            group.module,
            group.precision,
            f"{group.tensors:,}",
            size_text(group.size),
        )
    total = sum(group.size for group in inventory.groups)
    line = line_character(console) * 9
    table.add_row("", "", "", "", Text(line, style=QUIET))
    table.add_row("", "", "", f"{sum(g.tensors for g in inventory.groups):,}", size_text(total))
    return table
