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
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.sampling import SamplingParameters

DrafterOption = Annotated[
    DrafterName,
    typer.Option("--drafter", "--speculative-algorithm", case_sensitive=False, help="What proposes tokens."),
]
DraftTokensOption = Annotated[
    int,
    typer.Option("--k", "--draft-tokens", "--speculative-num-steps", help="Most drafts per verify pass (K)."),
]
DraftVocabularyOption = Annotated[
    str,
    typer.Option(
        help="On a GPU, choose drafts among 'frequent' tokens, 'all', so many of the frequent ones, or those "
        "of a file (one id a line). The text is the same."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="A torch device.")]
ComputeTypeOption = Annotated[
    ComputeType | None,
    typer.Option(
        "--dtype",
        help="Precision of activations and dense weights; if not given, float32 on a CPU, bfloat16 on a GPU.",
    ),
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


def print_config(config: EngineConfig, parameters: SamplingParameters, as_json: bool) -> int:
    """Show what is in force, and whether it was given or is the default."""
    defaults = {**asdict(EngineConfig()), **asdict(SamplingParameters())}
    settings = {**asdict(config), **asdict(parameters)}
    shown = {name: value.value if isinstance(value, Enum) else value for name, value in settings.items()}
    if as_json:
        write_text(json.dumps(shown, indent=2) + "\n")
        return 0
    width = max(len(name) for name in shown)
    for name, value in shown.items():
        origin = "default" if settings[name] == defaults[name] else "given"
        write_text(f"{name:<{width}}  {value!s:<12} {origin}\n")
    return 0
