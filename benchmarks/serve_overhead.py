"""What the server costs: tokens per second of one request at a time, through HTTP and in process, in turns.

    python -m benchmarks.serve_overhead [--rounds N] [--tokens N] [--temperature T] [--policy fixed|adaptive]

Arms: the engine in this process (`engine`), the same requests over HTTP streamed (`streamed`) and whole
(`whole`), to a server with the same engine settings. Every round asks every prompt of every arm, in an order
that rotates. Speed is output tokens over the time from request to end, prompt included; ratios are paired per
round and prompt. Beside them stands the ratio of each prompt's fastest answers: what else the machine does
only makes answers slower. CPU time per token says what the engine process does besides the engine's work,
whatever else runs; the HTTP process works beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter, process_time

import httpx2

from benchmarks.record import ratio_interval, write_record
from benchmarks.server_process import Ask, RunningServer, ServedAnswer, ask, median, served
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import DraftPolicy, EngineConfig
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request
from draftproof.links.prompts import shipped_prompts
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.tokenizer import Tokenizer

CONTEXT = 2048
SEQUENCES = 8
SEED = 7


def run_in_process(engine: EngineLoop, asked: Ask) -> ServedAnswer:
    """The same request without a server: token ids in and out."""
    parameters = SamplingParameters(
        asked.temperature, max_tokens=asked.tokens, ignore_eos=True, seed=asked.seed
    )
    begin = perf_counter()
    (done,) = engine.run([Request("benchmark", asked.prompt, parameters)])
    return ServedAnswer(len(done.token_ids), perf_counter() - begin, "", done.acceptance.accept_length)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--policy", choices=[policy.value for policy in DraftPolicy], default="fixed")
    options = parser.parse_args()
    checkpoint = open_checkpoint("tiny")
    assert checkpoint.folder is not None
    tokenizer = Tokenizer.load(checkpoint.folder)
    prompts = {prompt.name: tuple(tokenizer.encode(prompt.text)) for prompt in shipped_prompts(checkpoint)}
    engine = build_engine(
        checkpoint,
        EngineConfig(max_length=CONTEXT, max_sequences=SEQUENCES, draft_policy=DraftPolicy(options.policy)),
    ).engine
    rows: list[dict[str, object]] = []
    flags = ("--max-length", str(CONTEXT), "--max-num-seqs", str(SEQUENCES), "--draft-policy", options.policy)
    with served(*flags) as server, httpx2.Client(base_url=server.address, timeout=120.0) as client:
        arms: dict[str, Callable[[Ask], ServedAnswer]] = {
            "engine": lambda asked: run_in_process(engine, asked),
            "streamed": lambda asked: ask(client, asked),
            "whole": lambda asked: ask(client, asked),
        }
        names = list(arms)
        for turn in range(options.rounds + 1):
            for prompt, ids in prompts.items():
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    asked = Ask(ids, options.tokens, options.temperature, SEED, streamed=name == "streamed")
                    before = processor_times(server)
                    answer = arms[name](asked)
                    spent = {key: value - before[key] for key, value in processor_times(server).items()}
                    if turn:  # the first round warms up
                        rows.append({"round": turn, "prompt": prompt, "arm": name, **vars(answer), **spent})
    figures = summarize(rows, names)
    for name, line in figures.items():
        print(f"{name:<10}", line)
    print(write_record("serve-overhead", {"policy": options.policy, **figures}, {"answers": rows}))


def processor_times(server: RunningServer) -> dict[str, float]:
    """CPU seconds of the processes of each arm's engine, and of the HTTP process."""
    return {
        "in_process_cpu": process_time(),
        "engine_process_cpu": server.engine_seconds(),
        "http_process_cpu": server.front_seconds(),
    }


def summarize(rows: list[dict[str, object]], names: list[str]) -> dict[str, dict[str, object]]:
    """By arm: median speed, and the ratio to the engine's with its interval."""
    speeds = {name: [_speed(row) for row in rows if row["arm"] == name] for name in names}
    figures: dict[str, dict[str, object]] = {}
    best = {name: _fastest(rows, name) for name in names}
    order = {name: [(row["round"], row["prompt"]) for row in rows if row["arm"] == name] for name in names}
    for name in names:
        paired = dict(zip(order["engine"], speeds["engine"], strict=True))
        ratio = ratio_interval(speeds[name], [paired[key] for key in order[name]])
        figures[name] = {
            "tokens_per_second_median": round(median(speeds[name]), 1),
            "ratio_to_engine": [round(value, 3) for value in ratio],
            "ratio_of_fastest": round(
                median([best[name][prompt] / best["engine"][prompt] for prompt in best[name]]), 3
            ),
            "engine_cpu_ms_per_token": _milliseconds_per_token(
                rows, name, "in_process_cpu" if name == "engine" else "engine_process_cpu"
            ),
            "http_cpu_ms_per_token": _milliseconds_per_token(rows, name, "http_process_cpu"),
            "answers": len(speeds[name]),
        }
    return figures


def _speed(row: dict[str, object]) -> float:
    return float(str(row["tokens"])) / float(str(row["seconds"]))


def _milliseconds_per_token(rows: list[dict[str, object]], arm: str, clock: str) -> float:
    own = [row for row in rows if row["arm"] == arm]
    spent, tokens = (sum(float(str(row[key])) for row in own) for key in (clock, "tokens"))
    return round(1e3 * spent / tokens, 3)


def _fastest(rows: list[dict[str, object]], arm: str) -> dict[str, float]:
    fastest: dict[str, float] = {}
    for row in rows:
        if row["arm"] == arm:
            prompt = str(row["prompt"])
            fastest[prompt] = max(fastest.get(prompt, 0.0), _speed(row))
    return fastest


if __name__ == "__main__":
    main()
