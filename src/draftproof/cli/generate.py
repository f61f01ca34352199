"""`draftproof generate`: continue a prompt, with or without speculation."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.cli.console import write_text
from draftproof.cli.engine_options import (
    ChunkOption,
    ComputeTypeOption,
    DeviceOption,
    DrafterOption,
    DraftTokensOption,
    DraftVocabularyOption,
    MaxLengthOption,
    StorageOption,
    ThreadsOption,
    print_config,
)
from draftproof.engine.build import BuiltEngine, build_engine
from draftproof.engine.config import DrafterName, EngineConfig
from draftproof.engine.text_session import TextChunk, TextSession
from draftproof.errors import UsageError
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.sampling import SamplingParameters, fresh_seed
from draftproof.speculation.draft_vocabulary import FREQUENT
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer


def generate(
    checkpoint: Annotated[str, typer.Argument(metavar="CKPT", help="A folder, a cached repo id, or 'tiny'.")],
    prompt: Annotated[str, typer.Argument(help="Text to continue; '-' reads it from standard input.")],
    drafter: DrafterOption = DrafterName.NEXTN,
    draft_tokens: DraftTokensOption = 3,
    draft_vocabulary: DraftVocabularyOption = FREQUENT,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Most tokens to generate.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k most likely tokens; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the most likely tokens up to this probability.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Drop tokens below this share of the likeliest one.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 discourages repetition.")] = 1.0,
    presence_penalty: Annotated[float, typer.Option(help="Taken from tokens already in the output.")] = 0.0,
    frequency_penalty: Annotated[float, typer.Option(help="The same, for each time a token was used.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text; printed when not given.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text that ends the output; may be repeated.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Wrap the prompt in the checkpoint's chat template.")
    ] = False,
    thinking: Annotated[bool, typer.Option(help="With --chat: let the model think first.")] = False,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on after end-of-sequence tokens.")
    ] = False,
    device: DeviceOption = "cpu",
    compute_type: ComputeTypeOption = None,
    weight_storage: StorageOption = WeightStorage.DENSE,
    max_length: MaxLengthOption = None,
    prompt_chunk: ChunkOption = 256,
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--print-config", help="Show what is in force and stop.")
    ] = False,
) -> int:
    """Continue a prompt. The text is the same with and without speculation; only the speed differs.

    Text goes to standard output as it is made, figures to standard error.
    """
    parameters = SamplingParameters(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        max_tokens=max_tokens,
        stop_strings=tuple(stop or ()),
        ignore_eos=ignore_eos,
        seed=fresh_seed() if seed is None else seed,
    )
    config = EngineConfig(
        drafter=drafter,
        draft_tokens=draft_tokens,
        draft_vocabulary=draft_vocabulary,
        max_sequences=1,
        max_length=max_length,
        prompt_chunk=prompt_chunk,
        compute_type=compute_type,
        weight_storage=weight_storage,
        device=device,
        threads=threads,
    )
    if dry_run:
        return print_config(config, parameters, as_json)
    return _run(checkpoint, _Input(prompt, chat, thinking), config, parameters, as_json)


@dataclass(frozen=True)
class _Input:
    """What to continue: text or '-', in the chat template or as it is, with thinking or without."""

    prompt: str
    chat: bool
    thinking: bool


def _run(
    argument: str, given: _Input, config: EngineConfig, parameters: SamplingParameters, as_json: bool
) -> int:
    opened = open_checkpoint(argument)
    built = build_engine(opened, config)
    assert opened.folder is not None
    tokenizer = Tokenizer.load(opened.folder)
    prompt_ids = _prompt_ids(tokenizer, opened.folder, given)
    session = TextSession(built.engine, tokenizer)
    started = perf_counter()
    chunks: list[tuple[float, TextChunk]] = []
    for chunk in session.stream(prompt_ids, parameters):
        chunks.append((perf_counter() - started, chunk))
        if not as_json:
            write_text(chunk.text)
    if as_json:
        summary = _summary(built, prompt_ids, chunks, parameters.seed)
        write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    else:
        write_text("\n")
        sys.stderr.write(_figures(built, chunks, parameters) + "\n")
    return 0


def _text_of(prompt: str) -> str:
    """The prompt, or standard input for '-'; UsageError when its bytes are no text."""
    try:
        text = sys.stdin.read() if prompt == "-" else prompt
        text.encode()
    except UnicodeError as error:
        raise UsageError("the prompt is no valid UTF-8 text", "Convert it to UTF-8 first.") from error
    return text


def _prompt_ids(tokenizer: Tokenizer, folder: Path, given: _Input) -> tuple[int, ...]:
    text = _text_of(given.prompt)
    if not given.chat:
        if given.thinking:
            raise UsageError("--thinking belongs to --chat", "Add --chat.")
        return tuple(tokenizer.encode(text))
    template = ChatTemplate.load(folder)
    rendered = template.render(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        variables={"enable_thinking": given.thinking},
    )
    return tuple(tokenizer.encode_rendered(rendered))


def _speed(chunks: list[tuple[float, TextChunk]]) -> tuple[int, float]:
    """Tokens after the first step, and the seconds that they took."""
    if not chunks:
        return 0, 0.0
    return sum(len(chunk.token_ids) for _, chunk in chunks[1:]), chunks[-1][0] - chunks[0][0]


def _figures(
    built: BuiltEngine, chunks: list[tuple[float, TextChunk]], parameters: SamplingParameters
) -> str:
    tokens, seconds = _speed(chunks)
    total = sum(len(chunk.token_ids) for _, chunk in chunks)
    counts = built.engine.acceptance
    parts = [f"{total} tokens", f"{tokens / seconds:.0f} tokens/s" if seconds else ""]
    if counts.proposed:
        rates = " ".join(f"{rate:.0%}" for rate in counts.unconditional_rates)
        parts.append(f"accept length {counts.accept_length:.2f} (by position {rates})")
    if not parameters.is_greedy:
        parts.append(f"seed {parameters.seed}")
    return "— " + ", ".join(part for part in parts if part)


def _summary(
    built: BuiltEngine, prompt_ids: tuple[int, ...], chunks: list[tuple[float, TextChunk]], seed: int
) -> dict[str, object]:
    tokens, seconds = _speed(chunks)
    counts = built.engine.acceptance
    reason = chunks[-1][1].finish_reason if chunks else None
    return {
        "kind": "generation",
        "schema_version": "1.0",
        "text": "".join(chunk.text for _, chunk in chunks),
        "token_ids": [token for _, chunk in chunks for token in chunk.token_ids],
        "finish_reason": reason.value if reason else None,
        "prompt_tokens": len(prompt_ids),
        "seed": seed,
        "seconds_to_first_token": chunks[0][0] if chunks else None,
        "tokens_per_second": tokens / seconds if seconds else None,
        "drafter": built.engine.drafter_name,
        "verify_passes": counts.passes,
        "accept_length": counts.accept_length,
        "proposed_by_position": list(counts.proposed),
        "accepted_by_position": list(counts.accepted),
    }
