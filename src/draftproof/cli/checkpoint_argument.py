"""The argument that names a checkpoint, the same for every command that reads one."""

from __future__ import annotations

from typing import Annotated

import typer

CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CKPT", help="A folder, organisation/name[@revision], or 'tiny'.")
]
