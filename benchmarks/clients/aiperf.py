"""aiperf against our server, with nothing but its usual options.

    python -m benchmarks.clients.aiperf --program /path/to/aiperf --tokenizer FOLDER [--requests 24]

Chat streamed and whole, text completions, conversations of several turns, and requests that are cancelled in
the middle. Every other request has to succeed, and aiperf itself has to show the acceptance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients.load_tool import tool_options, version_of
from benchmarks.record import write_record
from benchmarks.watched_server import served

LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Run:
    """One call of aiperf.

    Attributes:
        name: what is asked for.
        options: of `aiperf profile`, beside those that every run has.
        cancels: some requests are cancelled on purpose.
    """

    name: str
    options: tuple[str, ...]
    cancels: bool = False


def main() -> int:
    options = _options()
    figures: dict[str, Any] = {"aiperf": version_of(options.program), "runs": {}}
    raw: dict[str, Any] = {}
    faults = []
    with tempfile.TemporaryDirectory() as folder, served(options.checkpoint, options.log) as server:
        for run in _runs(options):
            place = Path(folder) / run.name.replace(" ", "-")
            _call(options, run, server.url, place)
            report = json.loads((place / "profile_export_aiperf.json").read_text())
            figures["runs"][run.name] = shown = _figures(report)
            raw[run.name] = _answers(place / "profile_export.jsonl")
            faults += [f"{run.name}: {fault}" for fault in _faults(run, shown)]
    print(json.dumps(figures, indent=1))
    print(write_record("client-aiperf", {"faults": faults, **figures}, raw))
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


def _runs(options: argparse.Namespace) -> tuple[Run, ...]:
    count = ("--request-count", str(options.requests))
    chat = ("--endpoint-type", "chat")
    turns = ("--conversation-num", str(max(options.requests // 3, 1)), "--conversation-turn-mean", "3")
    return (
        Run("chat streamed, 1 at a time", (*chat, "--streaming", "--concurrency", "1", *count)),
        Run("chat streamed, 16 at a time", (*chat, "--streaming", "--concurrency", "16", *count)),
        Run("chat whole, 4 at a time", (*chat, "--concurrency", "4", *count)),
        Run(
            "completions streamed, 4 at a time",
            ("--endpoint-type", "completions", "--streaming", "--concurrency", "4", *count),
        ),
        Run("conversations, 4 at a time", (*chat, "--streaming", "--concurrency", "4", *turns)),
        Run(
            "cancelled ones among them, 8 at a time",
            (
                *(*chat, "--streaming", "--concurrency", "8", *count),
                *("--request-cancellation-rate", "30", "--request-cancellation-delay", "0.2"),
            ),
            cancels=True,
        ),
    )


def _call(options: argparse.Namespace, run: Run, url: str, place: Path) -> None:
    words = [
        *(options.program, "profile", "-m", Path(options.checkpoint).name, "--url", url),
        *("--synthetic-input-tokens-mean", str(options.prompt), "--output-tokens-mean", str(options.output)),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", f"temperature:{options.temperature:g}"),
        *("--tokenizer", str(options.tokenizer), "--random-seed", "7", "--output-artifact-dir", str(place)),
        *("--ui", "none", *run.options),
    ]
    subprocess.run(words, check=True, timeout=LIMIT_SECONDS)


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    def average(name: str) -> float | None:
        metric = report.get(name)
        return round(metric["avg"], 3) if metric else None

    return {
        "requests": average("request_count"),
        "completed": average("completed_request_count"),
        "errors": report["error_summary"],
        "error_rate_percent": average("request_error_rate"),
        "accept_length_per_token": average("spec_decode_token_weighted_acceptance_length"),
        "acceptance_rate_percent": average("spec_decode_overall_draft_acceptance_rate"),
        "acceptance_histogram": report.get("pooled_spec_decode_acceptance_histogram"),
        "accepted_prediction_tokens": average("total_usage_accepted_prediction_tokens"),
        "cached_prompt_tokens": average("total_usage_prompt_cache_read_tokens"),
        "output_tokens_per_second": average("output_token_throughput"),
        "time_to_first_token_ms": average("time_to_first_token"),
        "inter_token_latency_ms": average("inter_token_latency"),
        "request_latency_ms": average("request_latency"),
    }


def _faults(run: Run, shown: dict[str, Any]) -> list[str]:
    found = []
    if not shown["requests"]:
        found.append("no request succeeded")
    if not shown["accept_length_per_token"]:
        found.append("aiperf shows no acceptance")
    others = [error for error in shown["errors"] if not _is_cancellation(error)]
    if others or (shown["errors"] and not run.cancels):
        found.append(f"failed requests: {shown['errors']}")
    return found


def _is_cancellation(error: dict[str, Any]) -> bool:
    return "cancel" in json.dumps(error).lower()


def _answers(lines: Path) -> list[dict[str, Any]]:
    """Times and counts of each request."""
    names = (
        "request_latency",
        "time_to_first_token",
        "output_sequence_length",
        "spec_decode_acceptance_length",
    )
    answers = []
    for line in lines.read_text().splitlines():
        metrics = json.loads(line).get("metrics") or {}
        answers.append({name: metrics[name]["value"] for name in names if name in metrics})
    return answers


def _options() -> argparse.Namespace:
    parser = tool_options(__doc__, "aiperf")
    parser.add_argument("--temperature", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
