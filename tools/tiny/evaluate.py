"""Measures an exported checkpoint: bits a byte on held-out text, and accept lengths of the MTP head.

    python -m tools.tiny.evaluate --checkpoint FOLDER --shards SHARDS --out evaluation.json

Accept lengths follow decoding exactly. The model continues held-out prompts by its own samples (greedy, or at
a temperature with Gumbel noise addressed by position and token). From every committed slot a chain of drafts
is made from the same noise, and a decoder's walk counts the drafts that equal the model's own tokens. Chains
of all slots run in one parallel pass: a draft is only compared when the drafts before it were equal to the
text, so feeding the text is what a decoder would feed.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file
from torch import Tensor

from tools.quantization import Nvfp4Weight, decode_nvfp4
from tools.tiny.configuration import TinyConfig
from tools.tiny.gated_delta import GatedDelta, chunked
from tools.tiny.model import TinyModel

DEPTH = 5
PROMPTS = 64
PROMPT_TOKENS = 128
NEW_TOKENS = 192
WINDOW = 2048


def load_checkpoint(folder: Path, rule: GatedDelta = chunked) -> TinyModel:
    """The model of an exported folder, in float32, with the values that the file holds."""
    text = json.loads((folder / "config.json").read_text())["text_config"]
    rotary = text["rope_parameters"]
    fields = {name: text[name] for name in TinyConfig.__dataclass_fields__ if name in text}
    config = TinyConfig(
        **fields,
        partial_rotary_factor=rotary["partial_rotary_factor"],
        rope_theta=rotary["rope_theta"],
        mrope_section=tuple(rotary["mrope_section"]),
    )
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model-*.safetensors")):
        tensors.update(load_file(file))
    model = TinyModel(config, rule)
    state = {}
    for name in model.state_dict():
        if ".experts." not in name:
            state[name] = tensors[name].float()
            continue
        module, _, leaf = name.rpartition(".")
        names = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else ("down_proj",)
        state[name] = torch.stack(
            [
                torch.cat([_weight(tensors, f"{module}.{expert}.{projection}") for projection in names])
                for expert in range(config.num_experts)
            ]
        )
    model.load_state_dict(state)
    return model.eval()


def _weight(tensors: dict[str, Tensor], base: str) -> Tensor:
    if f"{base}.weight_scale" not in tensors:
        return tensors[f"{base}.weight"].float()
    return decode_nvfp4(
        Nvfp4Weight(
            tensors[f"{base}.weight"], tensors[f"{base}.weight_scale"], tensors[f"{base}.weight_scale_2"]
        )
    )


@torch.no_grad()
def bits_per_byte(model: TinyModel, tokens: Tensor, size: int, rows: int = 16) -> float:
    """Cross entropy of all tokens in windows of 2048, in bits for each byte of the text."""
    count = (len(tokens) - 1) // WINDOW
    spans = torch.arange(count, device=tokens.device)[:, None] * WINDOW
    batches = (spans + torch.arange(WINDOW + 1, device=tokens.device)).split(rows)
    total = 0.0
    for batch in batches:
        window = tokens[batch].long()
        logits = model.lm_head(model(window, depth=0).hidden).float()
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), window[:, 1:].flatten(), reduction="sum"
        )
        total += float(loss)
    return total / math.log(2) / (size * count * WINDOW / len(tokens))


def gumbel(shape: tuple[int, ...], device: torch.device, seed: int) -> Tensor:
    """Standard Gumbel noise, float32."""
    uniform = torch.rand(shape, generator=torch.Generator(device).manual_seed(seed), device=device)
    return -(-(uniform.clamp_min(1e-20)).log()).log()


@torch.no_grad()
def continue_text(
    model: TinyModel, prompts: Tensor, new: int, temperature: float, noise: Tensor | None
) -> Tensor:
    """Extends prompts [B, P] to [B, P + new] by the model's own samples.

    Args:
        model: the target.
        prompts: token ids.
        new: tokens to add.
        temperature: 0 is greedy.
        noise: [B, P + new, V], the noise of the token at each position; None when greedy.
    """
    batch, start = prompts.shape
    text = torch.cat([prompts, prompts.new_zeros(batch, new + 1)], dim=1)
    # The whole text runs for every token: slow, plain, and free of caches that could be wrong.
    for position in range(start, start + new):
        length = min(-(-(position + 1) // 64) * 64, text.shape[1] - 1)
        hidden = model(text[:, : length + 1], depth=0).hidden[:, position - 1]
        text[:, position] = _draw(
            model.lm_head(hidden), temperature, None if noise is None else noise[:, position]
        )
    return text[:, :-1]


def _draw(logits: Tensor, temperature: float, noise: Tensor | None) -> Tensor:
    return (logits.float() if noise is None else logits.float() / temperature + noise).argmax(-1)


@torch.no_grad()
def drafts_everywhere(
    model: TinyModel, text: Tensor, depth: int, temperature: float, noise: Tensor | None
) -> Tensor:
    """Drafts [depth, B, T] of the chain from each slot: [d, :, s] guesses the token at s + 2 + d."""
    batch, length = text.shape
    padded = torch.cat([text, text.new_zeros(batch, depth + 1)], dim=1)
    outputs = model(padded, depth).drafts
    found = []
    for draft, hidden in enumerate(outputs):
        # Slot j of draft d belongs to the chain from j - d and guesses the token at j + 2.
        logits = model.lm_head(hidden[:, draft : draft + length])
        at = None
        if noise is not None:
            first = draft + 2
            at = torch.cat([noise, noise.new_zeros(batch, depth + 2, noise.shape[-1])], 1)[
                :, first : first + length
            ]
        found.append(_draw(logits, temperature, at))
    return torch.stack(found)


def accept_walk(text: Tensor, drafts: Tensor, start: int, stop: int) -> tuple[int, int]:
    """Walks each row as a decoder does: (verify passes, tokens emitted), summed over rows.

    Args:
        text: [B, T] the model's own text.
        drafts: [K, B, T] as `drafts_everywhere` gives them; the first K of them are used.
        start: the slot of the last committed token but one: the token at start + 1 is sampled already.
        stop: slots from here on start no more passes.
    """
    depth = drafts.shape[0]
    guesses, truth = drafts.cpu().numpy(), text.cpu().numpy()
    passes = emitted = 0
    for row in range(truth.shape[0]):
        slot = start
        while slot < stop and slot + 2 + depth <= truth.shape[1] + 1:
            accepted = 0
            while (
                accepted < depth
                and slot + 2 + accepted < truth.shape[1]
                and guesses[accepted, row, slot] == truth[row, slot + 2 + accepted]
            ):
                accepted += 1
            passes += 1
            emitted += accepted + 1
            slot += accepted + 1
    return passes, emitted


def repeated_share(text: Tensor, span: int = 8) -> float:
    """Share of the `span`-token runs that their row had before: high when a model goes round in circles."""
    repeated = total = 0
    for row in text.tolist():
        seen: set[tuple[int, ...]] = set()
        for start in range(len(row) - span + 1):
            run = tuple(row[start : start + span])
            repeated += run in seen
            total += 1
            seen.add(run)
    return repeated / total


def accept_lengths(
    model: TinyModel, prompts: Tensor, temperature: float, seed: int
) -> dict[str, float | dict[str, float]]:
    """Accept length for K = 1 .. 5, acceptance of each draft given those before it, and repetition."""
    noise = None
    if temperature > 0:
        shape = (prompts.shape[0], prompts.shape[1] + NEW_TOKENS, model.config.vocab_size)
        noise = gumbel(shape, prompts.device, seed)
    text = continue_text(model, prompts, NEW_TOKENS, temperature, noise)
    drafts = drafts_everywhere(model, text, DEPTH, temperature, noise)
    start, stop = prompts.shape[1] - 1, text.shape[1] - DEPTH - 2
    lengths = {}
    for depth in range(1, DEPTH + 1):
        passes, emitted = accept_walk(text, drafts[:depth], start, stop)
        lengths[str(depth)] = round(emitted / passes, 4)
    alive = torch.ones_like(text[:, start:stop], dtype=torch.bool)
    rates = {}
    for draft in range(DEPTH):
        hits = drafts[draft, :, start:stop] == text[:, start + 2 + draft : stop + 2 + draft]
        rates[str(draft + 1)] = round(float((hits & alive).sum() / alive.sum().clamp_min(1)), 4)
        alive = alive & hits
    return {
        "temperature": temperature,
        "accept_length": lengths,
        "acceptance_given_earlier": rates,
        "repeated_8_grams": round(repeated_share(text[:, prompts.shape[1] :]), 4),
    }


def _prompts(tokens: Tensor, count: int) -> Tensor:
    spread = torch.linspace(0, len(tokens) - PROMPT_TOKENS - 1, count, device=tokens.device).long()
    return tokens[spread[:, None] + torch.arange(PROMPT_TOKENS, device=tokens.device)].long()


def evaluate(model: TinyModel, shards: Path, device: torch.device, prompts: int) -> dict[str, object]:
    """All numbers of the model card, by kind of text."""
    sizes = json.loads((shards / "sizes.json").read_text())
    result: dict[str, object] = {"prompts": prompts, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}
    for kind in ("code", "prose", "chat"):
        name = f"heldout-{kind}"
        tokens = torch.from_numpy(
            numpy.fromfile(shards / f"{name}.bin", numpy.uint16).astype(numpy.int32)
        ).to(device)
        numbers: dict[str, object] = {
            "bits_per_byte": round(bits_per_byte(model, tokens, sizes[name]["bytes"]), 4)
        }
        for label, temperature in (("greedy", 0.0), ("temperature_0.8", 0.8)):
            numbers[label] = accept_lengths(model, _prompts(tokens, prompts), temperature, seed=7)
        result[kind] = numbers
        print(kind, json.dumps(numbers), flush=True)
    return result


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_checkpoint(options.checkpoint).to(device)
    result = evaluate(model, options.shards, device, options.prompts)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
