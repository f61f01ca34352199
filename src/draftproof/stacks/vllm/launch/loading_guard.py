"""vLLM's check for parameters that no tensor was written to, where it has to be asked for."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.declared_options import DeclaredOptions

LOADER = "vllm/model_executor/model_loader/default_loader.py"
KEY = "enable_weights_track"
OPTION = "--model-loader-extra-config"
VALUE = json.dumps({KEY: True})


def guard(tree: SourceTree) -> Reading[str]:
    """The key that switches the check on; absent in versions that have none."""
    wanted = f'extra_config.get("{KEY}") in {LOADER}'
    try:
        module = tree.syntax(LOADER)
    except SourceError as error:
        return not_understood(f"looked for {wanted}: {error}")
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith(".get")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == KEY
        ):
            place = Place(LOADER, node.lineno)
            return found(KEY, f"{KEY} makes the loader refuse parameters that stay unwritten", place)
    return absent(f"looked for {wanted}, and found none", Place(LOADER, 1))


def is_quantised(checkpoint: ServedCheckpoint) -> bool:
    """Whether the checkpoint declares a quantisation, for which the check is off by default."""
    return bool(checkpoint.config.get("quantization_config") or checkpoint.hf_quant_config)


def guard_findings(
    bound: BoundCommand, options: DeclaredOptions, checkpoint: ServedCheckpoint, tree: SourceTree
) -> Iterator[LaunchFinding]:
    """Whether a head that is not written would be noticed."""
    if not is_quantised(checkpoint) or options.get(OPTION) is None:
        return
    known = guard(tree)
    if not known.is_found:
        return
    given = bound.value(OPTION) or ""
    flag = bound.given(OPTION)
    switched = KEY in given or (flag is not None and KEY in flag.flag.path)
    claim = "Parameters that no tensor is written to stop the start."
    expected = f"{OPTION} '{VALUE}', since the check is off for quantised checkpoints"
    observed = "it is on" if switched else "it is off: a head whose tensors are missing would draft garbage"
    yield LaunchFinding(
        "unwritten-noticed",
        OPTION,
        Ruling.HOLDS if switched else Ruling.WARNS,
        claim,
        expected,
        observed,
        "" if switched else f"add {OPTION} '{VALUE}'",
        known.places,
    )
