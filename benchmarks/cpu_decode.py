"""Decoding speed on a CPU, paired and interleaved in one run.

    python -m benchmarks.cpu_decode [--rounds N] [--tokens N] [--temperature T]

Arms: `transformers.generate` on the same weights (float32), our plain decoding, and NEXTN with K = 1 to 5.
Every round answers every prompt with every arm, in an order that rotates. Speed is tokens per second after
the first token; ratios are paired per round and prompt. Texts of all arms are compared with plain decoding.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from benchmarks.record import ratio_interval, write_record
from benchmarks.transformers_twin import transformers_twin
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.request import Request
from draftproof.links.prompts import shipped_prompts
from draftproof.runtime.sampling import SamplingParameters
from draftproof.text.tokenizer import Tokenizer

DEPTHS = (1, 2, 3, 4, 5)
SEED = 7


@dataclass(frozen=True)
class Answer:
    """Tokens, their speed in tokens per second, and the accept length."""

    token_ids: tuple[int, ...]
    speed: float
    accept_length: float


Arm = Callable[[tuple[int, ...]], Answer]


def engine_arm(engine: Engine, draft_tokens: int, tokens: int, temperature: float) -> Arm:
    """Our engine with up to `draft_tokens` drafts."""

    def answer(prompt: tuple[int, ...]) -> Answer:
        parameters = SamplingParameters(temperature, max_tokens=tokens, ignore_eos=True, seed=SEED)
        before = engine.acceptance
        engine.add(Request("benchmark", prompt, parameters, draft_tokens))
        produced: list[int] = []
        first = last = 0.0
        while engine.has_work:
            for output in engine.step():
                produced.extend(output.token_ids)
                last = perf_counter()
                first = first or last
        passes = engine.acceptance.passes - before.passes
        accepted = sum(engine.acceptance.accepted) - sum(before.accepted)
        return Answer(tuple(produced), (len(produced) - 1) / (last - first), 1 + accepted / max(passes, 1))

    return answer


def transformers_arm(model: Any, tokens: int) -> Arm:
    """`generate` of transformers; the time of a one-token answer (the prompt) is taken off."""

    def seconds(prompt: torch.Tensor, count: int) -> tuple[float, list[int]]:
        begin = perf_counter()
        output = model.generate(
            prompt, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        return perf_counter() - begin, output[0, prompt.shape[1] :].tolist()

    @torch.inference_mode()
    def answer(prompt: tuple[int, ...]) -> Answer:
        rows = torch.tensor([prompt])
        one, _ = seconds(rows, 1)
        all_of_them, produced = seconds(rows, tokens)
        return Answer(tuple(produced), (tokens - 1) / (all_of_them - one), 1.0)

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0, help="above 0 without the transformers arm")
    options = parser.parse_args()
    checkpoint = open_checkpoint("tiny")
    assert checkpoint.folder is not None
    tokenizer = Tokenizer.load(checkpoint.folder)
    prompts = [prompt for prompt in shipped_prompts(checkpoint) if prompt.kind in ("code", "prose")]
    built = build_engine(checkpoint, EngineConfig(draft_tokens=max(DEPTHS), max_sequences=1, max_length=2048))
    depths = {"plain": 0} | {f"nextn-k{depth}": depth for depth in DEPTHS}
    arms: dict[str, Arm] = {
        name: engine_arm(built.engine, depth, options.tokens, options.temperature)
        for name, depth in depths.items()
    }
    if options.temperature == 0:
        arms["transformers"] = transformers_arm(transformers_twin(checkpoint), options.tokens)
    rows: list[dict[str, Any]] = []
    names = list(arms)
    for turn in range(options.rounds + 1):
        for prompt in prompts:
            ids = tuple(tokenizer.encode(prompt.text))
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                answer = arms[name](ids)
                if turn:  # the first round warms up
                    rows.append(
                        {
                            "round": turn,
                            "prompt": prompt.name,
                            "kind": prompt.kind,
                            "arm": name,
                            **vars(answer),
                        }
                    )
    figures = summarize(rows, names)
    print(f"threads {built.threads}, temperature {options.temperature:g}")
    for name, line in figures.items():
        print(f"{name:<22}", *line.values())
    samples = [{key: value for key, value in row.items() if key != "token_ids"} for row in rows]
    print(write_record("cpu-decode", {"threads": built.threads, **figures}, {"answers": samples}))


def summarize(rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Per kind and arm: median speed, accept length, ratio to plain with its interval, and texts equal to
    plain's."""
    figures: dict[str, Any] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        plain = [row for row in rows if row["kind"] == kind and row["arm"] == "plain"]
        for name in names:
            own = [row for row in rows if row["kind"] == kind and row["arm"] == name]
            paired = sorted(own, key=_pair), sorted(plain, key=_pair)
            speeds = [[row["speed"] for row in side] for side in paired]
            ratio, low, high = ratio_interval(*speeds)
            figures[f"{kind} {name}"] = {
                "tokens_per_second_median": round(sorted(speeds[0])[len(speeds[0]) // 2], 1),
                "accept_length": round(sum(row["accept_length"] for row in own) / len(own), 3),
                "ratio_to_plain": [round(ratio, 3), round(low, 3), round(high, 3)],
                "same_text_as_plain": sum(
                    mine["token_ids"] == other["token_ids"] for mine, other in zip(*paired, strict=True)
                ),
                "answers": len(own),
            }
    return figures


def _pair(row: dict[str, Any]) -> tuple[int, str]:
    return row["round"], row["prompt"]


if __name__ == "__main__":
    main()
