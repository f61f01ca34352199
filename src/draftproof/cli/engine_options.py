"""Options that every command with an engine has, spelled once. Names of vLLM and SGLang that mean the same
work too."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

from draftproof.cli.console import write_text
from draftproof.engine.config import ComputeType, DrafterName, EngineConfig
from draftproof.models.stored_linear import WeightStorage
from draftproof.runtime.sampling import SamplingParameters

DrafterOption = Annotated[
    DrafterName,
    typer.Option("--drafter", "--speculative-algorithm", case_sensitive=False, help="What proposes tokens."),
]
DraftTokensOption = Annotated[
    int,
    typer.Option("--k", "--draft-tokens", "--speculative-num-steps", help="Most drafts per verify pass (K)."),
]
DeviceOption = Annotated[str, typer.Option(help="A torch device.")]
ComputeTypeOption = Annotated[
    ComputeType, typer.Option("--dtype", help="Precision of activations and dense weights.")
]
StorageOption = Annotated[
    WeightStorage,
    typer.Option("--weights", help="Keep quantised weights as real numbers, or packed as stored."),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-length", "--max-model-len", "--context-length", help="Longest prompt and output together."
    ),
]
ChunkOption = Annotated[
    int, typer.Option("--prompt-chunk", "--chunked-prefill-size", help="Most prompt tokens per step.")
]
ThreadsOption = Annotated[
    int | None, typer.Option(help="CPU threads; chosen from the model's size if not given.")
]


def engine_config(
    drafter: DrafterName,
    draft_tokens: int,
    device: str,
    compute_type: ComputeType,
    weight_storage: WeightStorage,
    max_length: int | None,
    prompt_chunk: int,
    threads: int | None,
    max_sequences: int,
) -> EngineConfig:
    """The options as one config; UsageError for a value that cannot be."""
    return EngineConfig(
        drafter=drafter,
        draft_tokens=draft_tokens,
        max_sequences=max_sequences,
        max_length=max_length,
        prompt_chunk=prompt_chunk,
        compute_type=compute_type,
        weight_storage=weight_storage,
        device=device,
        threads=threads,
    )


def print_config(config: EngineConfig, parameters: SamplingParameters, as_json: bool) -> int:
    """Show what is in force."""
    settings = {**asdict(config), **asdict(parameters)}
    shown = {name: value.value if isinstance(value, Enum) else value for name, value in settings.items()}
    if as_json:
        write_text(json.dumps(shown, indent=2) + "\n")
    else:
        width = max(len(name) for name in shown)
        write_text("".join(f"{name:<{width}}  {value}\n" for name, value in shown.items()))
    return 0
