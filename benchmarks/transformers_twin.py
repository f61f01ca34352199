"""The embedded checkpoint's target as a `transformers` model with the same weights, as real numbers in
float32."""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.kernels.dequantize.reference import dequantize_nvfp4

TEXT_PREFIX = "model.language_model."


def transformers_twin(checkpoint: Checkpoint) -> Any:
    """Build the twin; every parameter is written, or this raises."""
    assert checkpoint.folder is not None
    config = json.loads((checkpoint.folder / "config.json").read_text())["text_config"]
    stored: dict[str, Tensor] = {}
    for file in sorted({entry.file for entry in checkpoint.inventory.tensors.values()}):
        stored.update(load_file(checkpoint.folder / file))
    weights = _fuse_experts({name: _dense(name, stored) for name in stored if _is_target_weight(name)})
    model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**config)).float().eval()
    model.load_state_dict(weights, strict=True)
    return model


def _is_target_weight(name: str) -> bool:
    companions = (".weight_scale", ".weight_scale_2", ".input_scale")
    return not name.startswith("mtp.") and not name.endswith(companions)


def _dense(name: str, stored: dict[str, Tensor]) -> Tensor:
    tensor = stored[name]
    if tensor.dtype is torch.uint8:
        module = name.removesuffix(".weight")
        return dequantize_nvfp4(tensor, stored[f"{module}.weight_scale"], stored[f"{module}.weight_scale_2"])
    return tensor.float()


def _fuse_experts(dense: dict[str, Tensor]) -> dict[str, Tensor]:
    """Per-expert matrices to the stacked parameters of transformers, under its names."""
    renamed = {name.replace(TEXT_PREFIX, "model."): tensor for name, tensor in dense.items()}
    groups: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name in [name for name in renamed if ".experts." in name]:
        prefix, _, rest = name.partition(".experts.")
        expert, projection, _ = rest.split(".")
        groups.setdefault(prefix, {}).setdefault(int(expert), {})[projection] = renamed.pop(name)
    for prefix, experts in groups.items():
        members = [experts[index] for index in range(len(experts))]
        gate_up = [torch.cat((member["gate_proj"], member["up_proj"])) for member in members]
        renamed[f"{prefix}.experts.gate_up_proj"] = torch.stack(gate_up)
        renamed[f"{prefix}.experts.down_proj"] = torch.stack([member["down_proj"] for member in members])
    return renamed
