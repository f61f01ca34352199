"""Trains trunk and MTP head together, within a time budget, and writes the checkpoint.

    python -m tools.tiny.train --shards SHARDS --out FOLDER --minutes 8

The trunk learns the next token. The head learns the trunk's own next-token distribution, three chained drafts
deep, since what counts is agreement with the trunk. The learning rate warms up, stays, and falls to zero over
the last part of the budget; in the last quarter the routed experts take the values that NVFP4 can hold.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.nn import functional as neural

from tools.tiny.configuration import TinyConfig
from tools.tiny.export import export
from tools.tiny.fake_quantization import nvfp4_values
from tools.tiny.gated_delta import GatedDelta, chunked
from tools.tiny.layers import ExpertWeights
from tools.tiny.model import TinyModel
from tools.tiny.optimizer import Optimizer


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        seconds: time budget, compilation included.
        max_steps: stop earlier after this many steps.
        rows: sequences a step; the head runs on the first half of them.
        length: tokens a sequence.
        learning_rate: while it stays.
        warmup_steps: from zero to it.
        decay_from: share of the budget after which it falls linearly to zero.
        quantize_from: share of the budget after which experts are NVFP4.
        draft_weights: weight of each chained draft's loss.
        balance_weight: weight of the load balancing losses.
        report_every: steps between printed lines.
        seed: of the weights and of the order of the data.
    """

    seconds: float
    max_steps: int = 1_000_000
    rows: int = 64
    length: int = 2048
    learning_rate: float = 4e-3
    warmup_steps: int = 100
    decay_from: float = 0.55
    quantize_from: float = 0.75
    draft_weights: tuple[float, ...] = (0.4, 0.3, 0.2)
    balance_weight: float = 0.01
    report_every: int = 50
    seed: int = 0


def windows(tokens: Tensor, rows: int, length: int, seed: int) -> Iterator[Tensor]:
    """Batches [rows, length + 1] for ever; each pass over the tokens starts at another offset, in another
    order.
    """
    generator = torch.Generator(tokens.device).manual_seed(seed)
    steps = torch.arange(length + 1, device=tokens.device)
    while True:
        offset = int(torch.randint(0, length, (), generator=generator, device=tokens.device))
        count = (len(tokens) - offset - 1) // length
        order = torch.randperm(count, generator=generator, device=tokens.device)
        for batch in order.split(rows):
            if len(batch) == rows:
                yield tokens[(batch * length + offset)[:, None] + steps].long()


def trunk_loss(hidden: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of the next token, and the logits [B, T, V]."""
    logits = neural.linear(hidden, table)
    return neural.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()), logits


def draft_loss(draft: Tensor, table: Tensor, trunk_logits: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of a draft against the trunk's own distribution one slot later, and how often both agree.

    Args:
        draft: [B, T, h] output of the head.
        table: lm_head [V, h].
        trunk_logits: [B, T, V], detached.
        real: float32 [T - 1], 1 for slots that have a chain.
    """
    logits = neural.linear(draft[:, :-1], table).float()
    wanted = trunk_logits[:, 1:].float()
    loss = -(wanted.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    agreement = (wanted.argmax(-1) == logits.argmax(-1)).float()
    return (loss.mean(0) * real).sum() / real.sum(), (agreement.mean(0) * real).sum() / real.sum()


class Trainer:
    """Model, optimizer and losses; `step` does one update."""

    def __init__(self, model: TinyModel, recipe: Recipe, compiled: bool) -> None:
        self.model, self.recipe = model, recipe
        self._optimizer = Optimizer(model)
        self._trunk_loss, self._draft_loss = trunk_loss, draft_loss
        if compiled:
            compile_static = functools.partial(torch.compile, dynamic=False)
            self._trunk_loss, self._draft_loss = compile_static(trunk_loss), compile_static(draft_loss)
            for layer in model.trunk.layers:
                layer.compile(dynamic=False)
            head = model.mtp
            head.enter = compile_static(head.enter)
            head.layers[0].feed = compile_static(head.layers[0].feed)

    def step(self, batch: Tensor, learning_rate: float, quantized: float) -> tuple[Tensor, ...]:
        """One update; `quantized` is the share of NVFP4 rounding that the experts feel.

        Returns:
            Trunk loss, agreement of each draft with the trunk, load balance: detached scalars.
        """
        recipe, model = self.recipe, self.model
        rows = max(recipe.rows // 2, 1)
        with torch.autocast(batch.device.type, torch.bfloat16):
            outputs = model(batch, len(recipe.draft_weights), self._expert_weights(quantized), rows)
            table = model.lm_head.weight
            loss, logits = self._trunk_loss(outputs.hidden, table, batch[:, 1:])
            total = loss + recipe.balance_weight * sum(outputs.balance)
            wanted = logits[:rows].detach()
            agreements = []
            for first, (weight, draft) in enumerate(zip(recipe.draft_weights, outputs.drafts, strict=True)):
                real = (torch.arange(draft.shape[1] - 1, device=draft.device) >= first).float()
                part, agreement = self._draft_loss(draft, table, wanted, real)
                total = total + weight * part
                agreements.append(agreement)
        total.backward()
        self._optimizer.step(learning_rate)
        return loss.detach(), *agreements, outputs.balance[0].detach()

    def _expert_weights(self, quantized: float) -> list[ExpertWeights]:
        # Always through the same operations: a compiled layer would be compiled again for another kind of
        # tensor.
        stored = [layer.mlp.experts.weights for layer in self.model.trunk.layers]
        stacks = [nvfp4_values(torch.stack(parts), quantized) for parts in zip(*stored, strict=True)]
        return list(zip(*(stack.unbind() for stack in stacks), strict=True))


def learning_rate(recipe: Recipe, step: int, progress: float) -> float:
    """Warm up, stay, fall to zero at the end of the budget."""
    falling = min(1.0, max(0.0, (1.0 - progress) / (1.0 - recipe.decay_from)))
    return recipe.learning_rate * min(1.0, (step + 1) / recipe.warmup_steps) * falling


def train(model: TinyModel, tokens: Tensor, recipe: Recipe, compiled: bool) -> list[dict[str, float]]:
    """Trains in place until the budget is spent; returns what was printed."""
    trainer = Trainer(model, recipe, compiled)
    batches = windows(tokens, recipe.rows, recipe.length, recipe.seed)
    start = time.monotonic()
    history: list[dict[str, float]] = []
    for step in range(recipe.max_steps):
        progress = max((time.monotonic() - start) / recipe.seconds, step / recipe.max_steps)
        if progress >= 1.0:
            break
        rate = learning_rate(recipe, step, progress)
        numbers = trainer.step(next(batches), rate, float(progress >= recipe.quantize_from))
        if step % recipe.report_every == 0:
            loss, *agreements, balance = (round(float(number), 4) for number in numbers)
            seconds = round(time.monotonic() - start, 2)
            history.append({"step": step, "seconds": seconds, "loss": loss, "balance": balance})
            history[-1] |= {"learning_rate": rate}
            history[-1] |= {f"agreement_{draft}": share for draft, share in enumerate(agreements, 1)}
            print(json.dumps(history[-1]), flush=True)
    return history


def _rule(device: torch.device) -> GatedDelta:
    if device.type != "cuda":
        return chunked
    # Triton is imported on a GPU machine alone.
    from tools.tiny.gated_delta_triton import checked_rule

    return checked_rule(device)


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    recipe = replace(Recipe(options.minutes * 60), rows=options.rows, max_steps=options.max_steps)
    tokens = torch.from_numpy(
        numpy.fromfile(options.shards / "train.bin", numpy.uint16).astype(numpy.int32)
    ).to(device)
    model = TinyModel(TinyConfig(), _rule(device))
    model.initialize(recipe.seed)
    model.to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokens):,} tokens", flush=True)
    history = train(model, tokens, recipe, compiled=device.type == "cuda")
    steps = history[-1]["step"] + 1
    calibration = next(windows(tokens, 8, recipe.length, recipe.seed + 1))
    export(model, calibration, options.out)
    (options.out / "training.json").write_text(
        json.dumps(
            {
                "recipe": recipe.__dict__,
                "tokens_seen": steps * recipe.rows * recipe.length,
                "history": history,
            }
        )
    )


if __name__ == "__main__":
    main()
