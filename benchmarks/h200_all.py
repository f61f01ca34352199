"""All GPU figures in one run of under four minutes: `draftproof bench` case by case, transformers beside it.

    python -m benchmarks.h200_all [--cases NAME,NAME] [--seconds 225] [--output FOLDER] [--backend OP=NAME]

Writes `gpu-NAME-<date>.json` for every case as soon as it is done; `benchmarks.gpu_table` makes tables of
them. A case for which the time does not suffice is named and left out; one that fails or hangs is named, and
the rest goes on in a fresh process. Acceptance is simulated (3.0 tokens a pass at K = 3, the same chance for
each draft at a smaller K) and named so in every line: the weights were never trained.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import NoReturn

import torch

from benchmarks.record import RESULTS
from draftproof.bench.place import Gpu
from draftproof.bench.precisions import layout_named
from draftproof.bench.record import write_as_it_grows
from draftproof.bench.request import AS_MANY_AS_FIT, BenchRequest, parse_backend
from draftproof.bench.run import bench_stages
from draftproof.bench.shapes import first_layers, load_shape
from draftproof.bench.subject import state_sizes
from draftproof.errors import DraftproofError
from draftproof.hardware.memory_plan import memory_plan
from draftproof.hardware.weights import weigh_precisions

SMALL, LARGE = "qwen3.5-35b-a3b", "qwen3.5-122b-a10b"
ACCEPT_LENGTH = 3.0
DRAFT_ROWS = 32_768
BESIDE = "transformers-35b-bf16"
BESIDE_SECONDS = 40.0
WARM_UP_LAYERS = 4
WARM_UP_SECONDS = 40.0
WARM_UP_BYTES = 135e9
PATIENCE = 3.0
"""Times its expected seconds that a case may take: kernels are compiled when they are first used."""
LEAST_SECONDS = 10.0
FAILURES = (DraftproofError, RuntimeError, ValueError, TypeError, LookupError, AssertionError, OSError)


@dataclass(frozen=True)
class Case:
    """One request, and the seconds that it may be expected to take."""

    name: str
    request: BenchRequest
    seconds: float


def case(
    name: str,
    shape: str,
    precision: str,
    seconds: float,
    *,
    layers: int | None = None,
    drafts: tuple[int, ...] = (0, 3),
    narrow_head: bool = False,
    alone: bool = False,
) -> Case:
    """One sequence, with the time of every kernel; `alone`: and of each kernel by itself."""
    request = BenchRequest(
        shape=shape,
        precision=precision,
        layers=layers,
        draft_tokens=drafts,
        accept_length=ACCEPT_LENGTH,
        draft_rows=DRAFT_ROWS,
        draft_8bit=narrow_head,
        kernels=True,
        microbenchmarks=alone,
    )
    return Case(name, request, seconds)


def batches(name: str, precision: str, seconds: float, counts: tuple[int, ...]) -> Case:
    """Many sequences, every K."""
    request = BenchRequest(
        shape=SMALL,
        precision=precision,
        batches=counts,
        draft_tokens=(0, 1, 2, 3),
        steps=32,
        accept_length=ACCEPT_LENGTH,
        draft_rows=DRAFT_ROWS,
    )
    return Case(name, request, seconds)


CASES = (
    case("35b-nvfp4", SMALL, "nvfp4", 14, alone=True),
    case("35b-nvfp4-3.6", SMALL, "nvfp4-3.6", 12, alone=True),
    case("35b-bf16", SMALL, "bf16", 10, alone=True),
    batches("35b-nvfp4-routed-batches", "nvfp4-routed", 22, (1, 4, 16, 64)),
    batches("35b-bf16-batches", "bf16", 22, (1, 4, 16, 64)),
    case("122b-nvfp4", LARGE, "nvfp4", 13),
    case("397b-nvfp4-slice", "qwen3.5-397b-a17b", "nvfp4", 16, layers=AS_MANY_AS_FIT),
    case("27b-nvfp4-3.6", "qwen3.5-27b", "nvfp4-3.6", 10),
    case("35b-fp8", SMALL, "fp8", 8),
    case("35b-nvfp4-head-8bit", SMALL, "nvfp4", 8, drafts=(3,), narrow_head=True),
)


def main() -> None:
    begin = perf_counter()
    names = [each.name for each in CASES]
    # Beside it in time too: the same GPU, right after the same weights.
    names.insert(names.index("35b-bf16") + 1, BESIDE)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(names), help="in this order")
    parser.add_argument("--seconds", type=float, default=225.0, help="of the whole run")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--warm", action="store_true", help="everything is compiled already")
    parser.add_argument("--backend", action="append", default=[], help="as of draftproof bench")
    options = parser.parse_args()
    backends = tuple(parse_backend(each) for each in options.backend)
    wanted = options.cases.split(",")
    if not options.warm:
        named = [replace(each, request=replace(each.request, backends=backends)) for each in CASES]
        warm_up([each for each in named if each.name in wanted])
    bandwidth = Gpu().read_bandwidth()
    expected = {each.name: each.seconds for each in CASES} | {BESIDE: BESIDE_SECONDS}
    for place, name in enumerate(wanted):
        left = options.seconds - (perf_counter() - begin)
        if left < expected[name]:
            print(f"== {name}: left out, {left:.0f} of {options.seconds:.0f} s are left", flush=True)
            continue
        print(f"== {name}", flush=True)

        def go_on(reason: str, name: str = name, rest: Sequence[str] = tuple(wanted[place + 1 :])) -> None:
            print(f"== {name} {reason}", flush=True)
            seconds = options.seconds - (perf_counter() - begin)
            anew(rest, seconds, options)

        watch = Timer(PATIENCE * expected[name], go_on, ("hangs",))
        watch.daemon = True
        watch.start()
        started = perf_counter()
        path = options.output / f"gpu-{name}-{datetime.now(UTC):%Y-%m-%d-%H%M}.json"
        try:
            if name == BESIDE:
                beside(path, min(left, BESIDE_SECONDS))
            else:
                chosen = next(each for each in CASES if each.name == name)
                request = replace(chosen.request, backends=backends)
                run(replace(chosen, request=request), bandwidth, path)
        except FAILURES as error:
            traceback.print_exc()
            watch.cancel()
            # After a fault of a kernel nothing works in this process.
            go_on(f"failed: {error}")
        watch.cancel()
        # What a case made is unreachable now; graphs and weights hang together in cycles.
        gc.collect()
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_allocated() / 1e9
        print(f"== {name}: {perf_counter() - started:.1f} s, {kept:.2f} GB kept", flush=True)


def anew(cases: Sequence[str], seconds: float, options: argparse.Namespace) -> NoReturn:
    """The remaining cases in a fresh process in this one's place."""
    if not cases or seconds < LEAST_SECONDS:
        os._exit(1)
    arguments = [
        "--warm",
        "--cases",
        ",".join(cases),
        "--seconds",
        f"{seconds:.0f}",
        "--output",
        str(options.output),
    ]
    arguments += [word for each in options.backend for word in ("--backend", each)]
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.h200_all", *arguments])


def warm_up(chosen: Sequence[Case]) -> None:
    """Compile what the cases need, side by side, into the caches on disk: four layers of each shape, one
    process for each batch, as many at a time as the memory holds."""
    begin = perf_counter()
    requests = [replace(each.request, batches=(batch,)) for each in chosen for batch in each.request.batches]
    waves: list[list[BenchRequest]] = []
    room = 0.0
    for request in sorted(requests, key=warm_up_bytes):
        room -= warm_up_bytes(request)
        if room < 0 or not waves:
            waves.append([])
            room = WARM_UP_BYTES - warm_up_bytes(request)
        waves[-1].append(request)
    for wave in waves:
        commands = [[sys.executable, "-m", "draftproof.bench", *words(request)] for request in wave]
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        limit = perf_counter() + WARM_UP_SECONDS
        for process, command in zip(running, commands, strict=True):
            try:
                said, _ = process.communicate(timeout=max(1.0, limit - perf_counter()))
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            if process.returncode:
                print(f"warming up failed: {' '.join(command[3:])}: {said[-300:]}", flush=True)
        print(f"== warmed up {len(wave)} in {perf_counter() - begin:.1f} s", flush=True)


def warm_up_bytes(request: BenchRequest) -> float:
    """What four layers of a request take of the GPU's memory."""
    spec = first_layers(load_shape(request.shape), WARM_UP_LAYERS)
    weights = weigh_precisions(spec, layout_named(request.precision).groups)
    sizes = state_sizes(request)
    plan = memory_plan(spec, weights, sizes.slots, sizes.max_positions, sizes.window_rows)
    return plan.total


def words(request: BenchRequest) -> list[str]:
    """A request on four layers as the command line has it."""
    found = ["--shape", request.shape, "--precision", request.precision, "--layers", str(WARM_UP_LAYERS)]
    found += ["--batch", ",".join(map(str, request.batches))]
    found += ["--draft-tokens", ",".join(map(str, request.draft_tokens))]
    found += ["--context", str(request.context), "--steps", str(request.steps), "--repeats", "1"]
    found += ["--draft-vocabulary", str(request.draft_rows), "--simulate-accept-length"]
    found += [str(request.accept_length), *(["--draft-8bit"] if request.draft_8bit else [])]
    return found + [word for op, chosen in request.backends for word in ("--backend", f"{op}={chosen.value}")]


def run(chosen: Case, bandwidth: float, path: Path) -> None:
    """One case of ours."""
    stages = bench_stages(chosen.request, Gpu(bandwidth), lambda line: print(line, flush=True))
    command = " ".join(["python -m benchmarks.h200_all", *sys.argv[1:]])
    write_as_it_grows(stages, path, f"{command} (case {chosen.name})")


def beside(path: Path, seconds: float) -> None:
    """What transformers does with the same shape."""
    from benchmarks import transformers_beside

    transformers_beside.main(
        ["--shape", SMALL, "--new-tokens", "24", "--seconds", str(seconds), "--output-json", str(path)]
    )


if __name__ == "__main__":
    main()
