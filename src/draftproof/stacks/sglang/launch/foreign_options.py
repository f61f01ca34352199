"""Options of vLLM as people give them to SGLang, and what they are called there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from draftproof.stacks.command.command import GivenFlag


@dataclass(frozen=True)
class ForeignOption:
    """An option of vLLM.

    Attributes:
        names: its spellings there, with dashes.
        meaning: what to type instead, made of the option as given; "" when there is nothing to type.
        remark: what else differs.
    """

    names: tuple[str, ...]
    meaning: Callable[[GivenFlag], str]
    remark: str = ""


def speculation(drafts: int) -> str:
    """SGLang's options for K drafts per verify pass: steps K, one branch, K + 1 draft tokens."""
    return (
        f"--speculative-algorithm NEXTN --speculative-num-steps {drafts} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {drafts + 1}"
    )


def _drafts(flag: GivenFlag) -> int:
    """K of vLLM's option, whichever form it has; 3 when it says none."""
    if flag.path and flag.path[0].replace("-", "_") != "num_speculative_tokens":
        return 3
    text = flag.value or ""
    if text.isascii() and text.isdigit() and 0 < len(text) < 4:
        return int(text)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return 3
    drafts = content.get("num_speculative_tokens") if isinstance(content, dict) else None
    return drafts if isinstance(drafts, int) and 0 < drafts < 1000 else 3


def _speculation(flag: GivenFlag) -> str:
    return speculation(_drafts(flag))


def _renamed(name: str) -> Callable[[GivenFlag], str]:
    def meaning(flag: GivenFlag) -> str:
        return name if flag.value is None else f"{name} {flag.value}"

    return meaning


def _plain(text: str) -> Callable[[GivenFlag], str]:
    def meaning(flag: GivenFlag) -> str:
        return text

    return meaning


FROM_VLLM = (
    ForeignOption(
        ("--speculative-config", "-sc", "--num-speculative-tokens", "--spec-tokens", "--spec-method"),
        _speculation,
        "vLLM's K is SGLang's steps K and draft tokens K + 1",
    ),
    ForeignOption(("--speculative-model", "--spec-model"), _renamed("--speculative-draft-model-path")),
    ForeignOption(("-tp",), _renamed("--tp-size")),
    ForeignOption(("-pp",), _renamed("--pp-size")),
    ForeignOption(("-dp",), _renamed("--dp-size")),
    ForeignOption(("--max-model-len",), _renamed("--context-length")),
    ForeignOption(
        ("--gpu-memory-utilization",),
        _renamed("--mem-fraction-static"),
        "SGLang's fraction counts weights and cache only, vLLM's everything",
    ),
    ForeignOption(("--max-num-seqs",), _renamed("--max-running-requests")),
    ForeignOption(("--max-num-batched-tokens",), _renamed("--chunked-prefill-size")),
    ForeignOption(("--block-size",), _renamed("--page-size")),
    ForeignOption(("--moe-backend",), _plain("--moe-runner-backend NAME"), "the names of backends differ"),
    ForeignOption(("--enable-expert-parallel", "-ep"), _plain("--ep-size N")),
    ForeignOption(("--enforce-eager",), _plain("--disable-cuda-graph")),
    ForeignOption(
        ("--enable-prefix-caching",), _plain(""), "SGLang's prefix cache is on unless switched off"
    ),
    ForeignOption(("--no-enable-prefix-caching",), _plain("--disable-radix-cache")),
    ForeignOption(("--enable-auto-tool-choice",), _plain(""), "SGLang needs --tool-call-parser only"),
    ForeignOption(
        ("--enable-chunked-prefill",), _plain(""), "SGLang's prefill is chunked unless switched off"
    ),
    ForeignOption(("--hf-overrides",), _renamed("--json-model-override-args")),
    ForeignOption(("--async-scheduling",), _plain(""), "SGLang's overlap schedule is on unless switched off"),
    ForeignOption(("--disable-log-requests", "--no-enable-log-requests"), _plain("")),
)


def from_vllm(flag: GivenFlag) -> ForeignOption | None:
    """The option of vLLM that was typed; None when vLLM has none of that name here."""
    name = flag.base.replace("_", "-")
    return next((option for option in FROM_VLLM if name in option.names), None)
