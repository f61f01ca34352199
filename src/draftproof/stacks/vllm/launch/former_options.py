"""Options that people give vLLM and that are another stack's, or of another time, and what to type instead.

This is advice, never evidence: whether an option exists is read from the version at hand, and an advised
option is named only when that version has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from draftproof.stacks.launch_facts import OptionTable

SPECULATIVE = "--speculative-config"


@dataclass(frozen=True)
class Advice:
    """What takes an option's place.

    Attributes:
        origin: whose option it is: "SGLang's", "an earlier vLLM's".
        options: what to use instead, the first that the version has.
        words: how, when more than the name changes.
    """

    origin: str
    options: tuple[str, ...]
    words: str = ""


_SGLANG = "SGLang's"
_EARLIER = "an earlier vLLM's"
_METHOD = '"method": "mtp" in --speculative-config says that the head is the checkpoint\'s own'
_STEPS = 'K steps of SGLang are "num_speculative_tokens": K in --speculative-config'
_DRAFTS = 'N draft tokens of SGLang are "num_speculative_tokens": N - 1, since N counts the last token too'
_TOP_K = "vLLM drafts one chain; leave it out"

ADVICE: dict[str, Advice] = {
    "--speculative-algorithm": Advice(_SGLANG, (SPECULATIVE,), _METHOD),
    "--speculative-num-steps": Advice(_SGLANG, (SPECULATIVE,), _STEPS),
    "--speculative-num-draft-tokens": Advice(_SGLANG, (SPECULATIVE,), _DRAFTS),
    "--speculative-eagle-topk": Advice(_SGLANG, (), _TOP_K),
    "--speculative-draft-model-path": Advice(_SGLANG, ("--spec-model", SPECULATIVE)),
    "--speculative-draft-model-quantization": Advice(_SGLANG, (SPECULATIVE,), '"quantization" in its JSON'),
    "--speculative-accept-threshold-single": Advice(_SGLANG, (), "vLLM has no thresholds; leave it out"),
    "--speculative-accept-threshold-acc": Advice(_SGLANG, (), "vLLM has no thresholds; leave it out"),
    "--speculative-attention-mode": Advice(_SGLANG, (), "leave it out"),
    "--speculative-draft-attention-backend": Advice(
        _SGLANG, (SPECULATIVE,), '"attention_backend" in its JSON'
    ),
    "--speculative-moe-runner-backend": Advice(_SGLANG, (SPECULATIVE,), '"moe_backend" in its JSON'),
    "--model-path": Advice(_SGLANG, (), "give the model as the first word after `vllm serve`"),
    "--tp": Advice(_SGLANG, ("--tensor-parallel-size",)),
    "--tp-size": Advice(_SGLANG, ("--tensor-parallel-size",)),
    "--pp-size": Advice(_SGLANG, ("--pipeline-parallel-size",)),
    "--dp": Advice(_SGLANG, ("--data-parallel-size",)),
    "--dp-size": Advice(_SGLANG, ("--data-parallel-size",)),
    "--ep-size": Advice(_SGLANG, ("--enable-expert-parallel",)),
    "--context-length": Advice(_SGLANG, ("--max-model-len",)),
    "--mem-fraction-static": Advice(_SGLANG, ("--gpu-memory-utilization",)),
    "--max-running-requests": Advice(_SGLANG, ("--max-num-seqs",)),
    "--chunked-prefill-size": Advice(_SGLANG, ("--max-num-batched-tokens",)),
    "--moe-runner-backend": Advice(_SGLANG, ("--moe-backend",)),
    "--fp4-gemm-backend": Advice(_SGLANG, ("--linear-backend",)),
    "--fp8-gemm-backend": Advice(_SGLANG, ("--linear-backend",)),
    "--linear-attn-prefill-backend": Advice(_SGLANG, ("--gdn-prefill-backend",)),
    "--linear-attn-backend": Advice(_SGLANG, ("--gdn-prefill-backend",)),
    "--disable-radix-cache": Advice(_SGLANG, ("--no-enable-prefix-caching",)),
    "--mamba-ssm-dtype": Advice(_SGLANG, ("--mamba-ssm-cache-dtype",)),
    "--cuda-graph-max-bs": Advice(_SGLANG, ("--max-cudagraph-capture-size",)),
    "--disable-cuda-graph": Advice(_SGLANG, ("--enforce-eager",)),
    "--speculative-model": Advice(_EARLIER, ("--spec-model", SPECULATIVE)),
    "--num-speculative-tokens": Advice(_EARLIER, ("--spec-tokens", SPECULATIVE), "K is a key of its JSON"),
    "--disable-log-requests": Advice(_EARLIER, ("--no-enable-log-requests",)),
    "--guided-decoding-backend": Advice(_EARLIER, ("--structured-outputs-config",)),
    "--task": Advice(_EARLIER, ("--runner",)),
    "--use-v2-block-manager": Advice(_EARLIER, (), "leave it out"),
    "--enable-chunked-context": Advice(_EARLIER, (), "leave it out"),
}


def advice_for(name: str, value: str | None, table: OptionTable) -> tuple[str, str]:
    """Whose option a name is, and what to do about it in a version; both empty when nobody knows.

    Args:
        name: as typed, with dashes.
        value: what was typed after it.
        table: the options of the version.
    """
    advice = ADVICE.get(name)
    if advice is None:
        return "", ""
    drafts = _drafts(name, value)
    if drafts is not None and table.get(SPECULATIVE) is not None:
        content = json.dumps({"method": "mtp", "num_speculative_tokens": drafts})
        return advice.origin, f"use {SPECULATIVE} '{content}': {advice.words}"
    known = next((option for option in advice.options if table.get(option) is not None), "")
    parts = (f"use {known}" if known else "", advice.words)
    return advice.origin, ": ".join(part for part in parts if part)


def _drafts(name: str, value: str | None) -> int | None:
    """K that an option of another stack means; None when it means none."""
    if value is None or not value.isdigit():
        return None
    if name in ("--speculative-num-steps", "--num-speculative-tokens"):
        return int(value) or None
    if name == "--speculative-num-draft-tokens":
        return max(1, int(value) - 1)
    return None
