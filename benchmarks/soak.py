"""Ten minutes of mixed traffic: every whole answer is what the request gets alone without speculation.

    python -m benchmarks.soak [--checkpoint tiny] [--minutes 10] [--clients 16] [--cases 104] [--url URL]

First every request of the catalogue is answered alone, one after another, with speculation off and nothing
kept from earlier prompts. Then clients ask at random: whole, streamed, read slowly, left in the middle; with
tools, schemas, long prompts, stop strings, temperatures 0 and 1. In the end nothing may be left in the
server, and its memory must be what it was after the first quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

from openai import AsyncOpenAI

from benchmarks.record import write_record
from benchmarks.soak_cases import Case, catalogue
from benchmarks.soak_report import Sample, faults_of, figures_of, left_in
from benchmarks.soak_traffic import Answer, Manner, Tally, ask, client_loop
from benchmarks.watched_server import ServerProcess, served

TEMPLATE = Path(__file__).parent / "soak_template.jinja"
SMALL_POOL = ("--max-model-len", "1024", "--max-total-tokens", "1536")
"""So little that kept prompts are dropped and sequences are put back to be computed again."""
SAMPLE_SECONDS = 2.0
SETTLE_SECONDS = 10.0


def main() -> int:
    options = _options()
    with _server(options) as (url, process):
        return asyncio.run(_soak(url, process, options))


async def _soak(url: str, process: ServerProcess | None, options: argparse.Namespace) -> int:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=options.api_key, max_retries=0, timeout=300)
    model = (await client.models.list()).data[0].id
    cases = catalogue(options.cases)
    print(f"{len(cases)} requests alone, speculation off", flush=True)
    began = monotonic()
    expected = await _expected(client, model, cases, url)
    alone_seconds = monotonic() - began
    print(f"  {alone_seconds:.0f} s; now {options.clients} clients for {options.minutes:g} min", flush=True)
    tally = Tally()
    before = _information(url)
    samples = await _traffic(client, model, expected, tally, url, process, options)
    after = await _settled(url)
    figures = {
        "clients": options.clients,
        "different_requests": options.cases,
        **figures_of(tally, samples, before, after),
    }
    figures["alone_seconds"] = round(alone_seconds, 1)
    exit_code = process.stop() if process is not None else None
    figures["exit_code_after_sigterm"] = exit_code
    faults = faults_of(figures)
    print(json.dumps({key: value for key, value in figures.items() if key != "mismatches"}, indent=1))
    told = {"memory": [vars(sample) for sample in samples], "answer_seconds": tally.seconds}
    print(write_record("soak", {"faults": faults, **figures}, told))
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


async def _expected(client: AsyncOpenAI, model: str, cases: tuple[Case, ...], url: str) -> dict[Case, Answer]:
    """The right answer of each request."""
    answers = {}
    for case in cases:
        _reset_prefix_cache(url)
        answers[case] = await ask(client, model, case.without_speculation(), Manner.WHOLE)
    return answers


async def _traffic(
    client: AsyncOpenAI,
    model: str,
    expected: dict[Case, Answer],
    tally: Tally,
    url: str,
    process: ServerProcess | None,
    options: argparse.Namespace,
) -> list[Sample]:
    begin = monotonic()
    until = begin + 60 * options.minutes
    loops = [
        asyncio.create_task(client_loop(client, model, expected, tally, random.Random(number), until))
        for number in range(options.clients)
    ]
    samples = []
    while not all(loop.done() for loop in loops):
        await asyncio.sleep(SAMPLE_SECONDS)
        load = await asyncio.to_thread(_information, url)
        samples.append(
            Sample(
                round(monotonic() - begin, 1),
                process.resident_megabytes() if process is not None else {},
                load["load"]["running"],
                load["load"]["waiting"],
                load["counters"]["output_tokens"],
            )
        )
    await asyncio.gather(*loops)
    return samples


async def _settled(url: str) -> dict[str, Any]:
    """The server after the last client has gone, when nothing is in it any more or patience ends."""
    limit = monotonic() + SETTLE_SECONDS
    while True:
        information = _information(url)
        if not any(left_in(information).values()) or monotonic() > limit:
            return information
        await asyncio.sleep(0.2)


def _information(url: str) -> dict[str, Any]:
    with urlopen(f"{url}/server_info", timeout=30) as answer:
        return dict(json.load(answer))


def _reset_prefix_cache(url: str) -> None:
    with urlopen(Request(f"{url}/reset_prefix_cache", method="POST"), timeout=30):
        pass


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[tuple[str, ServerProcess | None]]:
    if options.url:
        yield options.url.rstrip("/").removesuffix("/v1"), None
        return
    own = ("--max-num-seqs", str(options.clients), "--chat-template", str(TEMPLATE), *SMALL_POOL)
    with served(options.checkpoint, options.log, [*own, *options.option]) as server:
        yield server.url, server


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="tiny")
    parser.add_argument("--url", default="", help="a server that runs already, in place of one of our own")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--cases", type=int, default=104)
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "draftproof-soak.log")
    parser.add_argument(
        "--option", action="append", default=[], help="of `draftproof serve`; may be repeated"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
