"""Options that users of vLLM and SGLang bring along, by their names there. What they mean for our own server
is in `cli.server_engine`."""

from __future__ import annotations

from typing import Annotated

import typer

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.errors import UsageError

_PANEL = "As vLLM and SGLang spell it"
_LIMITS = JsonLimits(values=100, depth=4)

ServedCheckpointArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CKPT", help="A folder, organisation/name[@revision], or 'tiny'.", show_default=False
    ),
]
ModelPathOption = Annotated[
    str | None,
    typer.Option("--model-path", "--model", metavar="CKPT", rich_help_panel=_PANEL, help="The checkpoint."),
]
SpeculativeConfigOption = Annotated[
    str | None,
    typer.Option(
        "--speculative-config",
        metavar="JSON",
        rich_help_panel=_PANEL,
        help='{"method": "mtp", "num_speculative_tokens": K}.',
    ),
]
WindowTokensOption = Annotated[
    int | None,
    typer.Option("--speculative-num-draft-tokens", rich_help_panel=_PANEL, help="Must be K + 1 here."),
]
TreeWidthOption = Annotated[
    int | None, typer.Option("--speculative-eagle-topk", rich_help_panel=_PANEL, help="Must be 1 here.")
]
KeepPrefixesOption = Annotated[
    bool | None,
    typer.Option("--enable-prefix-caching", rich_help_panel=_PANEL, help="It is on if not given."),
]
DropPrefixesOption = Annotated[
    bool | None,
    typer.Option(
        "--no-enable-prefix-caching",
        "--disable-radix-cache",
        rich_help_panel=_PANEL,
        help="The same as --prefix-snapshots 0.",
    ),
]
MemoryShareOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        rich_help_panel=_PANEL,
        help="Share of a GPU's memory that weights and state take at most, above 0 and up to 1; all that is "
        "free if not given.",
    ),
]


def one_checkpoint(argument: str | None, option: str | None) -> str:
    """The checkpoint, named as CKPT or by --model-path.

    Raises:
        UsageError: nobody named one, or two were named.
    """
    if argument is not None and option is not None and argument != option:
        raise UsageError(f"two checkpoints are named: {argument} and, by --model-path, {option}", "Name one.")
    named = argument if option is None else option
    if named is None:
        raise UsageError(
            "no checkpoint is named", "Name a folder, organisation/name or 'tiny': draftproof serve CKPT."
        )
    return named


def json_object(option: str, text: str | None) -> dict[str, object] | None:
    """The JSON object that an option was given; None when it was not given.

    Raises:
        UsageError: it is no JSON object.
    """
    if text is None:
        return None
    try:
        return parse_object(text.encode(errors="surrogateescape"), _LIMITS)
    except JsonProblem as problem:
        raise UsageError(
            f"{option} is no JSON object: {problem}", f'For example: {option} \'{{"method": "mtp"}}\'.'
        ) from problem
