"""`draftproof bench`: device steps on weights of a real shape, timed, beside the byte roofline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from draftproof.bench.precisions import LAYOUTS
from draftproof.bench.request import (
    BenchRequest,
    parse_backend,
    parse_draft_vocabulary,
    parse_layers,
    parse_numbers,
)
from draftproof.bench.shapes import SHAPES
from draftproof.cli.console import write_text

_DEFAULT = BenchRequest(SHAPES[0])


def bench(
    shape: Annotated[str, typer.Option(help=f"One of: {', '.join(SHAPES)}.")] = _DEFAULT.shape,
    precision: Annotated[
        str, typer.Option(help=f"One of: {', '.join(layout.name for layout in LAYOUTS)}.")
    ] = _DEFAULT.precision,
    layers: Annotated[
        str | None, typer.Option(help="The first so many layers alone; fit: as many as the memory holds.")
    ] = None,
    batch: Annotated[str, typer.Option(help="Sequences at once: 1,4,16,64.")] = "1",
    draft_tokens: Annotated[
        str, typer.Option("--draft-tokens", "--k", help="Drafts per verify pass (K); 0 is plain decoding.")
    ] = "0,3",
    context: Annotated[int, typer.Option(help="Tokens of each sequence before the measured steps.")] = (
        _DEFAULT.context
    ),
    steps: Annotated[int, typer.Option(help="Steps of one sample.")] = _DEFAULT.steps,
    repeats: Annotated[int, typer.Option(help="Samples of each measurement, taken in turns.")] = (
        _DEFAULT.repeats
    ),
    simulate_accept_length: Annotated[
        float | None,
        typer.Option(
            help="SIMULATE acceptance: tokens per verify pass at the largest K. Weights that were never "
            "trained accept nothing; every line of the result says that this was simulated."
        ),
    ] = None,
    draft_vocabulary: Annotated[
        str | None,
        typer.Option(help="Choose drafts among the first so many tokens, or those that a file names."),
    ] = None,
    draft_8bit: Annotated[
        bool, typer.Option("--draft-8bit", help="Keep the MTP head in 8 bits; no text depends on it.")
    ] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="Time of each kernel of a step.")] = False,
    microbenchmarks: Annotated[
        bool, typer.Option("--microbenchmarks", help="Each kernel alone, with its bytes.")
    ] = False,
    eager: Annotated[bool, typer.Option("--eager", help="Without CUDA graphs.")] = False,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="An op's backend in place of the table's: experts_step=triton; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights.")] = _DEFAULT.seed,
    output_json: Annotated[Path | None, typer.Option(help="Write figures and raw samples here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same JSON on standard output.")] = False,
) -> int:
    """Time device steps on a GPU, with weights of a real release's shape that are made on the device.

    Exit code 2 for a request that cannot be, 4 without a GPU or with too little of its memory (refused before
    anything is allocated), 1 when a kernel computes something wrong.
    """
    given = draft_vocabulary
    draft_rows, draft_file = (None, None) if given is None else parse_draft_vocabulary(given)
    request = BenchRequest(
        shape=shape,
        precision=precision,
        layers=None if layers is None else parse_layers(layers),
        batches=parse_numbers(batch, "--batch"),
        draft_tokens=parse_numbers(draft_tokens, "--draft-tokens"),
        context=context,
        steps=steps,
        repeats=repeats,
        accept_length=simulate_accept_length,
        draft_rows=draft_rows,
        draft_file=draft_file,
        draft_8bit=draft_8bit,
        kernels=kernels,
        microbenchmarks=microbenchmarks,
        eager=eager,
        backends=tuple(parse_backend(each) for each in backend or ()),
        seed=seed,
    )
    from draftproof.bench.place import Gpu
    from draftproof.bench.record import require_writable, result_json, write_as_it_grows
    from draftproof.bench.run import bench_stages, run_bench

    tell, command = _tell_aside if as_json else _tell, " ".join(["draftproof", *sys.argv[1:]])
    if output_json is None:
        result = run_bench(request, Gpu(), tell)
    else:
        require_writable(output_json)
        result = write_as_it_grows(bench_stages(request, Gpu(), tell), output_json, command)
    if as_json:
        write_text(json.dumps(result_json(result, command), indent=1) + "\n")
    return 0


def _tell(line: str) -> None:
    write_text(f"{line}\n")


def _tell_aside(line: str) -> None:
    sys.stderr.write(f"{line}\n")
