"""Speculation on against off through the server, at several concurrencies, in turns.

    python -m benchmarks.serve_speculation [--rounds N] [--tokens N] [--temperature T] [--policy P]

One server; the arms are requests with `"speculative": false` and requests without. A sample is as many
clients as the concurrency says, each with a few requests one after another, of different prompts and lengths;
its speed is all output tokens over the time until the last request has ended. (Requests that begin and end
all at once would end apart with drafts, and the last ones alone.) Every round takes a sample of every
concurrency and arm, in an order that rotates; ratios are paired by round. Beside the speeds stands the engine
process's CPU time per token, which other work on the machine changes less. Texts of both arms must be equal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from time import perf_counter

import httpx2

from benchmarks.record import ratio_interval, write_record
from benchmarks.server_process import Ask, ServedAnswer, ask, median, served
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.links.prompts import shipped_prompts
from draftproof.text.tokenizer import Tokenizer

CONCURRENCIES = (1, 4, 16)
REQUESTS_OF_CLIENT = 4
CONTEXT = 1024
SEED = 11
WARM_UP_ROUNDS = 2
"""Rounds that do not count: acceptance is learned, and each K has been tried."""


@dataclass(frozen=True)
class Sample:
    """One batch.

    Attributes:
        round: in which it was taken.
        concurrency: requests at a time.
        speculative: whether drafts were allowed.
        speed: output tokens a second of all requests together.
        accept_length: tokens a verify pass, mean over the requests.
        cpu_per_token: CPU milliseconds of the engine process.
    """

    round: int
    concurrency: int
    speculative: bool
    speed: float
    accept_length: float
    cpu_per_token: float


def run_batch(
    pool: ThreadPoolExecutor, client: httpx2.Client, asked: Sequence[Sequence[Ask]]
) -> tuple[float, list[ServedAnswer]]:
    """Each client's requests one after another, all clients at once; seconds until the last one has ended,
    and the answers."""
    begin = perf_counter()
    answers = list(pool.map(lambda own: [ask(client, each) for each in own], asked))
    return perf_counter() - begin, [answer for own in answers for answer in own]


def requests_of(
    prompts: Sequence[tuple[int, ...]], turn: int, concurrency: int, on: bool, options: argparse.Namespace
) -> list[list[Ask]]:
    """What each client asks in a round: lengths from three quarters to five quarters of the usual one."""
    count = concurrency * REQUESTS_OF_CLIENT
    asked = [
        Ask(
            prompt,
            options.tokens * (12 + place * 7 % 9) // 16,
            options.temperature,
            SEED + place,
            speculative=on,
        )
        for place, prompt in enumerate(islice(cycle(prompts), turn, turn + count))
    ]
    return [asked[first::concurrency] for first in range(concurrency)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--policy", choices=["adaptive", "fixed"], default="adaptive")
    options = parser.parse_args()
    checkpoint = open_checkpoint("tiny")
    assert checkpoint.folder is not None
    tokenizer = Tokenizer.load(checkpoint.folder)
    prompts = [tuple(tokenizer.encode(prompt.text)) for prompt in shipped_prompts(checkpoint)]
    most = max(CONCURRENCIES)
    flags = ("--max-length", str(CONTEXT), "--max-num-seqs", str(most), "--draft-policy", options.policy)
    cells = [(concurrency, on) for concurrency in CONCURRENCIES for on in (False, True)]
    samples: list[Sample] = []
    different = 0
    with (
        served(*flags) as server,
        httpx2.Client(base_url=server.address, timeout=300.0) as client,
        ThreadPoolExecutor(most) as pool,
    ):
        for turn in range(options.rounds + WARM_UP_ROUNDS):
            texts: dict[tuple[int, bool], list[str]] = {}
            for concurrency, on in cells[turn % len(cells) :] + cells[: turn % len(cells)]:
                asked = requests_of(prompts, turn, concurrency, on, options)
                before = server.engine_seconds()
                seconds, answers = run_batch(pool, client, asked)
                spent = server.engine_seconds() - before
                texts[concurrency, on] = [answer.text for answer in answers]
                if turn >= WARM_UP_ROUNDS:
                    tokens = sum(answer.tokens for answer in answers)
                    length = sum(answer.accept_length for answer in answers) / len(answers)
                    sample = Sample(turn, concurrency, on, tokens / seconds, length, 1e3 * spent / tokens)
                    samples.append(sample)
            different += sum(texts[each, True] != texts[each, False] for each in CONCURRENCIES)
        information = client.get("/server_info").json()
    figures = summarize(samples)
    for name, line in figures.items():
        print(f"{name:<14}", line)
    print("batches whose texts differ between the arms:", different)
    record = {"policy": options.policy, "different_batches": different, **figures}
    raw = {"batches": [vars(each) for each in samples], "server": information}
    print(write_record("serve-speculation", record, raw))


def summarize(samples: Sequence[Sample]) -> dict[str, dict[str, object]]:
    """By concurrency: median speeds of both arms, and their ratio with its interval."""
    figures: dict[str, dict[str, object]] = {}
    for concurrency in CONCURRENCIES:
        arms = {
            on: sorted(
                (each for each in samples if each.concurrency == concurrency and each.speculative is on),
                key=lambda sample: sample.round,
            )
            for on in (False, True)
        }
        speeds = {on: [sample.speed for sample in arms[on]] for on in arms}
        spent = {on: [sample.cpu_per_token for sample in arms[on]] for on in arms}
        figures[f"concurrency {concurrency}"] = {
            "tokens_per_second_off": round(median(speeds[False]), 1),
            "tokens_per_second_on": round(median(speeds[True]), 1),
            "best_off": round(max(speeds[False]), 1),
            "best_on": round(max(speeds[True]), 1),
            "ratio_on_to_off": [round(value, 3) for value in ratio_interval(speeds[True], speeds[False])],
            "cpu_ratio_off_to_on": [round(value, 3) for value in ratio_interval(spent[False], spent[True])],
            "accept_length_on": round(sum(each.accept_length for each in arms[True]) / len(arms[True]), 3),
        }
    return figures


if __name__ == "__main__":
    main()
