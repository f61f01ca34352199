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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any
from urllib.request import Request, urlopen

from openai import AsyncOpenAI

from benchmarks.record import write_record
from benchmarks.server_process import ServerProcess, served
from benchmarks.soak_cases import Case, catalogue
from benchmarks.soak_traffic import Answer, Manner, Tally, ask, client_loop

TEMPLATE = Path(__file__).parent / "soak_template.jinja"
SAMPLE_SECONDS = 2.0
ALLOWED_GROWTH = 0.03
"""Of memory between the second quarter and the last."""
SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Sample:
    """The server at one moment.

    Attributes:
        seconds: since the traffic began.
        megabytes: resident, by process; empty for a server that somebody else started.
        running: sequences.
        waiting: likewise.
        tokens: output tokens since the server's start.
    """

    seconds: float
    megabytes: dict[str, float]
    running: int
    waiting: int
    tokens: int


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
    figures = _figures(tally, samples, before, after, options)
    figures["alone_seconds"] = round(alone_seconds, 1)
    exit_code = process.stop() if process is not None else None
    figures["exit_code_after_sigterm"] = exit_code
    faults = _faults(figures)
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
        if not any(_left(information).values()) or monotonic() > limit:
            return information
        await asyncio.sleep(0.2)


def _left(information: dict[str, Any]) -> dict[str, int]:
    cache, load = information["cache"], information["load"]
    return {
        "running": load["running"],
        "waiting": load["waiting"],
        "pages_used": cache["pages_used"],
        "slots_used": cache["slots_used"],
        "requests_in_flight": len(information["requests"]),
    }


def _figures(
    tally: Tally,
    samples: list[Sample],
    before: dict[str, Any],
    after: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:
    whole = len(tally.seconds)
    seconds = samples[-1].seconds
    return {
        "minutes": round(seconds / 60, 2),
        "clients": options.clients,
        "different_requests": options.cases,
        "answers_compared": whole,
        "answers_by_kind": dict(tally.kinds),
        "requests_by_manner": dict(tally.manners),
        "mismatch_count": tally.mismatch_count,
        "mismatches": tally.mismatches,
        "errors": dict(tally.errors),
        "queue_full": tally.retries,
        "answer_tokens_per_second": round(tally.tokens / seconds, 1),
        "answer_seconds_median": median(tally.seconds) if whole else None,
        "megabytes_second_quarter": _memory(samples, 0.25, 0.5),
        "megabytes_last_quarter": _memory(samples, 0.75, 1.0),
        "left_in_server": _left(after),
        "health": after["health"],
        "alarms": after["alarms"],
        "counters": {name: value - before["counters"][name] for name, value in after["counters"].items()},
        "prefix_hit_rate": round(
            after["cache"]["prefix_hit_tokens"] / max(after["cache"]["prefix_queried_tokens"], 1), 3
        ),
        "acceptance": after["speculation"]["total"],
    }


def _memory(samples: list[Sample], begin: float, end: float) -> float:
    """Median of all processes together over a part of the run."""
    last = samples[-1].seconds
    part = [
        sum(sample.megabytes.values()) for sample in samples if begin * last <= sample.seconds <= end * last
    ]
    return round(median(part), 1) if part else 0.0


def _faults(figures: dict[str, Any]) -> list[str]:
    """What must not be."""
    found = []
    if not figures["answers_compared"]:
        found.append("no whole answer came")
    if figures["mismatch_count"]:
        found.append(f"{figures['mismatch_count']} answers differ from the same request alone")
    if figures["errors"]:
        found.append(f"{sum(figures['errors'].values())} requests failed: {figures['errors']}")
    left = {name: value for name, value in figures["left_in_server"].items() if value}
    if left:
        found.append(f"left in the server: {left}")
    early, late = figures["megabytes_second_quarter"], figures["megabytes_last_quarter"]
    if late > early * (1 + ALLOWED_GROWTH):
        found.append(f"memory grew from {early} to {late} MB")
    if figures["health"]["state"] not in ("ready", "degraded"):
        found.append(f"health is {figures['health']}")
    if figures["exit_code_after_sigterm"] not in (0, None):
        found.append(f"exit code {figures['exit_code_after_sigterm']} after SIGTERM")
    return found


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
    own = ("--max-num-seqs", str(options.clients), "--chat-template", str(TEMPLATE))
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
    parser.add_argument("--log", type=Path, default=Path("/tmp/draftproof-soak.log"))
    parser.add_argument(
        "--option", action="append", default=[], help="of `draftproof serve`; may be repeated"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
