"""`python -m draftproof.bench`: the benchmark where the command line's packages are not installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from draftproof.bench.place import Gpu
from draftproof.bench.precisions import LAYOUTS
from draftproof.bench.record import require_writable, write_as_it_grows
from draftproof.bench.request import (
    BenchRequest,
    parse_backend,
    parse_draft_vocabulary,
    parse_layers,
    parse_numbers,
)
from draftproof.bench.run import bench_stages, run_bench
from draftproof.bench.shapes import SHAPES
from draftproof.errors import DraftproofError


def main(arguments: Sequence[str]) -> int:
    """Carry out one command line; its exit code."""
    options = _parser().parse_args(arguments)
    try:
        given = options.draft_vocabulary
        draft_rows, draft_file = (None, None) if given is None else parse_draft_vocabulary(given)
        request = BenchRequest(
            shape=options.shape,
            precision=options.precision,
            layers=None if options.layers is None else parse_layers(options.layers),
            batches=parse_numbers(options.batch, "--batch"),
            draft_tokens=parse_numbers(options.draft_tokens, "--draft-tokens"),
            context=options.context,
            steps=options.steps,
            repeats=options.repeats,
            accept_length=options.simulate_accept_length,
            draft_rows=draft_rows,
            draft_file=draft_file,
            draft_8bit=options.draft_8bit,
            kernels=options.kernels,
            microbenchmarks=options.microbenchmarks,
            eager=options.eager,
            backends=tuple(parse_backend(each) for each in options.backend),
            seed=options.seed,
        )
        if options.output_json is None:
            run_bench(request, Gpu(), _tell)
            return 0
        require_writable(options.output_json)
        command = " ".join(["python -m draftproof.bench", *arguments])
        write_as_it_grows(bench_stages(request, Gpu(), _tell), options.output_json, command)
        _tell(f"written to {options.output_json}")
    except DraftproofError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = BenchRequest(SHAPES[0])
    parser = argparse.ArgumentParser(prog="python -m draftproof.bench", description=main.__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=defaults.shape)
    parser.add_argument(
        "--precision", choices=[layout.name for layout in LAYOUTS], default=defaults.precision
    )
    parser.add_argument("--layers", help="only the first so many layers; fit: as many as the memory holds")
    parser.add_argument("--batch", default="1", help="1,4,16,64")
    parser.add_argument("--draft-tokens", default="0,3", help="0,1,2,3")
    parser.add_argument("--context", type=int, default=defaults.context)
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--repeats", type=int, default=defaults.repeats)
    parser.add_argument("--simulate-accept-length", type=float, help="tokens a verify pass at the largest K")
    parser.add_argument("--draft-vocabulary", help="drafts from the first so many tokens, or those of a file")
    parser.add_argument("--draft-8bit", action="store_true", help="the MTP head in 8 bits")
    parser.add_argument("--kernels", action="store_true", help="time of each kernel of a step")
    parser.add_argument("--microbenchmarks", action="store_true", help="each kernel alone, with its bytes")
    parser.add_argument("--eager", action="store_true", help="without graphs")
    parser.add_argument("--backend", action="append", default=[], help="experts_step=triton; may be repeated")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--output-json", type=Path)
    return parser


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
