"""Writes a trained model as an NVFP4 checkpoint of the Qwen3.5-MoE layout.

Routed experts become ModelOpt NVFP4, one set of four tensors a projection; everything else is BF16, with
A_log and the delta rule's norm in F32. The MTP head stays BF16, expert by expert, as the released checkpoints
keep it.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools.quantization import E2M1_MAX, E4M3_MAX, encode_nvfp4, nvfp4_global_scale
from tools.tiny.configuration import TinyConfig
from tools.tiny.layers import MoeBlock
from tools.tiny.model import TinyModel

SHARDS = 2
_PREFIX = "model.language_model."
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def export(model: TinyModel, calibration: Tensor, folder: Path) -> None:
    """Writes the shards, the index, config.json and hf_quant_config.json.

    Args:
        model: trained weights in float32.
        calibration: tokens [B, T + 1] whose activations set the `input_scale` of each expert.
        folder: made when missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(model, _expert_inputs(model, calibration))
    _write_shards(tensors, folder)
    excluded = _excluded(model.config)
    _write_json(folder / "config.json", _config(model.config, excluded))
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "exclude_modules": excluded,
    }
    producer = {"name": "draftproof tools/tiny", "version": "1"}
    _write_json(folder / "hf_quant_config.json", {"producer": producer, "quantization": quantization})


@torch.no_grad()
def _expert_inputs(model: TinyModel, calibration: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """For each trunk layer's experts, the largest input of gate/up and of down, each [E]."""
    largest: dict[str, tuple[Tensor, Tensor]] = {}

    def record(name: str, block: MoeBlock, x: Tensor, gate_up: Tensor) -> None:
        visits = block.route(x)[0] > 0
        inputs = (x.abs().amax(-1, keepdim=True) * visits).amax((0, 1)).float()
        active = (block.activate(x, gate_up).abs().amax(-1) * visits).amax((0, 1)).float()
        largest[name] = (inputs.cpu(), active.cpu())

    plain = TinyModel(model.config, model.trunk.layers[0].linear_attn.rule).to(calibration.device)
    # A fresh, uncompiled copy runs the hooks; a compiled layer would not.
    plain.load_state_dict(model.state_dict())
    for index, layer in enumerate(plain.trunk.layers):
        layer.mlp.register_forward_pre_hook(
            lambda block, arguments, name=f"{_PREFIX}layers.{index}.mlp": record(
                name, block, arguments[0], arguments[1][0]
            )
        )
    with torch.autocast(calibration.device.type, torch.bfloat16, enabled=calibration.is_cuda):
        plain(calibration, depth=0)
    return largest


def _tensors(model: TinyModel, inputs: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        value = value.detach().float().cpu()
        module, _, leaf = name.rpartition(".")
        if leaf == "gate_up_proj":
            scales = inputs.get(module.removesuffix(".experts"))
            for expert, both in enumerate(value):
                gate, up = both.chunk(2)
                shared = nvfp4_global_scale(gate, up)
                for projection, weight in (("gate_proj", gate), ("up_proj", up)):
                    base = f"{module}.{expert}.{projection}"
                    tensors.update(
                        _expert(base, weight, shared, None if scales is None else scales[0][expert])
                    )
        elif leaf == "down_proj":
            scales = inputs.get(module.removesuffix(".experts"))
            for expert, weight in enumerate(value):
                base = f"{module}.{expert}.down_proj"
                tensors.update(_expert(base, weight, None, None if scales is None else scales[1][expert]))
        else:
            wide = leaf == "A_log" or name.endswith("linear_attn.norm.weight")
            tensors[name] = value.contiguous() if wide else value.bfloat16()
    return tensors


def _expert(
    base: str, weight: Tensor, global_scale: Tensor | None, largest_input: Tensor | None
) -> dict[str, Tensor]:
    """One projection of one expert: NVFP4 when its inputs were calibrated, else BF16 (the MTP head)."""
    weight = weight.contiguous()
    if largest_input is None:
        return {f"{base}.weight": weight.bfloat16()}
    encoded = encode_nvfp4(weight, global_scale)
    input_scale = torch.where(largest_input > 0, largest_input / (E2M1_MAX * E4M3_MAX), torch.ones(()))
    return {
        f"{base}.weight": encoded.packed.contiguous(),
        f"{base}.weight_scale": encoded.block_scale.contiguous(),
        f"{base}.weight_scale_2": encoded.global_scale.clone(),
        f"{base}.input_scale": input_scale.float().clone(),
    }


def _write_shards(tensors: dict[str, Tensor], folder: Path) -> None:
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        if used > total * len(shards) / SHARDS:
            shards.append({})
        shards[-1][name] = tensor
        used += tensor.numel() * tensor.element_size()
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, file))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    _write_json(folder / "model.safetensors.index.json", index)


def _excluded(config: TinyConfig) -> list[str]:
    excluded = ["lm_head"]
    for index, kind in enumerate(config.layer_types):
        layer = f"{_PREFIX}layers.{index}"
        mixer = "self_attn" if kind == "full_attention" else "linear_attn"
        excluded += [f"{layer}.{mixer}*", f"{layer}.mlp.gate", f"{layer}.mlp.shared_expert*"]
    return [*excluded, "mtp.layers.0*", "mtp*"]


def _config(config: TinyConfig, excluded: list[str]) -> dict[str, object]:
    floats = {"dynamic": False, "group_size": 16, "num_bits": 4, "type": "float"}
    end_of_text = config.vocab_size - 32
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "image_token_id": end_of_text + 12,
        "language_model_only": True,
        "model_type": "qwen3_5_moe",
        "quantization_config": {
            "config_groups": {
                "group_0": {"input_activations": floats, "targets": ["Linear"], "weights": floats}
            },
            "ignore": excluded,
            "producer": {"name": "draftproof tools/tiny", "version": "1"},
            "quant_algo": "NVFP4",
            "quant_method": "modelopt",
        },
        "text_config": _text_config(config, end_of_text),
        "tie_word_embeddings": False,
        "video_token_id": end_of_text + 13,
        "vision_end_token_id": end_of_text + 10,
        "vision_start_token_id": end_of_text + 9,
    }


def _text_config(config: TinyConfig, end_of_text: int) -> dict[str, object]:
    same = (
        "full_attention_interval", "head_dim", "hidden_size", "linear_conv_kernel_dim", "linear_key_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim", "max_position_embeddings",
        "moe_intermediate_size", "num_attention_heads", "num_experts", "num_experts_per_tok",
        "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "shared_expert_intermediate_size",
        "vocab_size",
    )  # fmt: skip
    return {
        **{name: getattr(config, name) for name in same},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": end_of_text,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "layer_types": list(config.layer_types),
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "model_type": "qwen3_5_moe_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": list(config.mrope_section),
            "partial_rotary_factor": config.partial_rotary_factor,
            "rope_theta": config.rope_theta,
            "rope_type": "default",
        },
        "router_aux_loss_coef": 0.001,
        "use_cache": True,
    }


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
