"""transformers' models as the oracle: loaded from the same folders, or given weights by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.checkpoints import WrittenCheckpoint


def reference_model(folder: Path) -> nn.Module:
    """The class that config.json names, in float32; every tensor but the head's has a place in it.

    Text-only exports with a nested config leave the vision tower out.
    """
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, report = getattr(transformers, name).from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert all(key.startswith("model.visual.") for key in report["missing_keys"])
    assert not report["mismatched_keys"]
    assert all(key.startswith("mtp.") for key in report["unexpected_keys"])
    return model.eval()


@torch.inference_mode()
def reference_logits(model: nn.Module, token_ids: Tensor) -> Tensor:
    """[batch, rows, vocab] of one pass without a cache."""
    return model(input_ids=token_ids, use_cache=False).logits


def assert_same_logits(got: Tensor, expected: Tensor) -> None:
    """Equal up to what float32 rounds in this depth, in units of the logits' spread.

    transformers' own float32 logits are off by 3e-6 on average, 1.5e-4 at worst, judged by its float64 ones.
    """
    error = (got - expected).abs() / expected.std()
    assert error.mean() < 1e-5
    assert error.max() < 2e-4


@torch.inference_mode()
def greedy_text(model: nn.Module, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The most likely continuation, by transformers' own loop and cache."""
    rows = torch.tensor([prompt])
    answer = model.generate(
        input_ids=rows,
        attention_mask=torch.ones_like(rows),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(answer[0, len(prompt) :].tolist())


def write_dequantized(written: WrittenCheckpoint, folder: Path) -> Path:
    """The same model with every weight as the float32 number that it stands for."""
    folder.mkdir()
    config = {key: value for key, value in written.config.items() if key != "quantization_config"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in written.tensors.items()}, folder / "model.safetensors"
    )
    return folder


def submodule_state(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors below a prefix, by the rest of their names; experts stacked as transformers 5 holds them."""
    state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    count = sum(name.endswith(".down_proj.weight") and ".experts." in name for name in state)
    if not count:
        return state

    def take(expert: int, projection: str) -> Tensor:
        return state.pop(f"mlp.experts.{expert}.{projection}_proj.weight")

    gate_up, down = [], []
    for expert in range(count):
        gate_up.append(torch.cat((take(expert, "gate"), take(expert, "up"))))
        down.append(take(expert, "down"))
    state["mlp.experts.gate_up_proj"] = torch.stack(gate_up)
    state["mlp.experts.down_proj"] = torch.stack(down)
    return state
