"""GuideLLM against our server, with nothing but its usual options.

    python -m benchmarks.clients.guidellm --program /path/to/guidellm [--checkpoint tiny] [--requests 48]

Chat and text completions at several concurrencies, streamed as GuideLLM does. Every request has to succeed,
and the acceptance that the answers carry is read from GuideLLM's own report.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.clients.load_tool import tool_options, version_of
from benchmarks.record import write_record
from benchmarks.watched_server import served

FORMATS = ("/v1/chat/completions", "/v1/completions")
LIMIT_SECONDS = 900


def main() -> int:
    options = _options()
    figures: dict[str, Any] = {"guidellm": version_of(options.program), "runs": {}}
    raw = {}
    with tempfile.TemporaryDirectory() as folder, served(options.checkpoint, options.log) as server:
        for path in FORMATS:
            report = _run(options, server.url, path, Path(folder) / "report.json")
            for benchmark in report["benchmarks"]:
                name = f"{path} {benchmark['config']['strategy']['streams']} at a time"
                figures["runs"][name] = _figures(benchmark)
                raw[name] = [_answer(request) for request in benchmark["requests"]["successful"]]
    print(json.dumps(figures, indent=1))
    print(write_record("client-guidellm", figures, raw))
    faults = [name for name, run in figures["runs"].items() if not _is_good(run)]
    for name in faults:
        print(f"FAULT: {name}")
    return 1 if faults or not figures["runs"] else 0


def _run(options: argparse.Namespace, url: str, path: str, report: Path) -> dict[str, Any]:
    words = [
        options.program,
        "run",
        *("--backend", f"kind=openai_http,target={url},request_format={path}"),
        *("--profile", "kind=concurrent,streams=1"),
        *("--override", "profile.streams", ",".join(map(str, options.streams))),
        *("--constraint", f"kind=max_requests,count={options.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={options.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={options.prompt},output_tokens={options.output}"),
        *("--output", f"kind=json,path={report}"),
        "--disable-console-interactive",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(words, check=True, timeout=LIMIT_SECONDS, env=environment)
    return dict(json.loads(report.read_text()))


def _figures(benchmark: dict[str, Any]) -> dict[str, Any]:
    metrics = benchmark["metrics"]
    answers = [_answer(request) for request in benchmark["requests"]["successful"]]
    drafts = [answer["speculative_decoding"] for answer in answers if answer["speculative_decoding"]]
    steps = sum(one["num_spec_steps"] for one in drafts)
    accepted = sum(one["num_accepted_draft_tokens"] for one in drafts)
    return {
        "requests": metrics["request_totals"],
        "output_tokens_per_second_mean": _mean(metrics["output_tokens_per_second"]),
        "time_to_first_token_ms_mean": _mean(metrics["time_to_first_token_ms"]),
        "inter_token_latency_ms_mean": _mean(metrics["inter_token_latency_ms"]),
        "output_tokens_per_iteration_mean": _mean(metrics["output_tokens_per_iteration"]),
        "answers_with_acceptance": len(drafts),
        "accept_length": round(1 + accepted / steps, 3) if steps else None,
    }


def _mean(metric: dict[str, Any]) -> float:
    return round(metric["successful"]["mean"], 2)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Times and counts of one request, and what the server said of its drafts."""
    return {
        "seconds": round(request["info"]["completed_at"] - request["info"]["started_at"], 4),
        "output_tokens": request["output_metrics"]["text_tokens"],
        "speculative_decoding": (request["response_metrics"] or {}).get("speculative_decoding"),
    }


def _is_good(run: dict[str, Any]) -> bool:
    totals = run["requests"]
    every = totals["successful"] == totals["total"] and totals["total"] > 0
    return every and run["answers_with_acceptance"] == totals["total"]


def _options() -> argparse.Namespace:
    parser = tool_options(__doc__, "guidellm")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
