"""`draftproof inspect`: what is inside a checkpoint, without a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from draftproof.checkpoint.checkpoint import Checkpoint, open_checkpoint
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.cli.checkpoint_argument import CheckpointArgument
from draftproof.cli.console import report_console, terminal_progress, write_text
from draftproof.evidence.inventory_terminal import print_inventory, print_tensors
from draftproof.links.inventory import take_stock
from draftproof.links.tensor_facts import tensors_named


def inspect(
    checkpoint: CheckpointArgument,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON on stdout.")] = False,
    tensor: Annotated[
        str,
        typer.Option(
            "--tensor", metavar="NAME", help="Show tensors by name, or a part of it, and their values."
        ),
    ] = "",
) -> int:
    """Show what is inside a checkpoint: family, MTP head, precision, sizes.

    Reads config files and headers, of a repository on the hub by range requests. Facts, not verdicts: the
    exit code is 0 whatever they are.
    """
    with paused_collection(), terminal_progress() as progress:
        opened = open_checkpoint(
            checkpoint, lambda done, total: progress.advance("reading headers", done, total)
        )
        if tensor:
            return _show_tensors(opened, tensor, as_json)
        inventory = take_stock(opened)
    if as_json:
        from draftproof.evidence.inventory_report import InventoryModel
        from draftproof.evidence.report_models import render_json

        write_text(render_json(InventoryModel.of(inventory)))
    else:
        print_inventory(report_console(), inventory)
    return 0


def _show_tensors(checkpoint: Checkpoint, part: str, as_json: bool) -> int:
    """Shows some tensors.

    Raises:
        UsageError: no tensor has such a name.
    """
    found = tensors_named(checkpoint, part)
    if as_json:
        from draftproof.evidence.inventory_report import TensorsModel
        from draftproof.evidence.report_models import render_json

        write_text(render_json(TensorsModel.of(found)))
    else:
        print_tensors(report_console(), found)
    return 0
