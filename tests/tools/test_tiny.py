"""The embedded checkpoint's makers: the real architecture is trained, and the export is what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tools.quantization import decode_nvfp4, encode_nvfp4
from tools.tiny.configuration import TOY, TinyConfig
from tools.tiny.evaluate import accept_walk, load_checkpoint
from tools.tiny.export import export
from tools.tiny.fake_quantization import nvfp4_values
from tools.tiny.model import TinyModel
from tools.tiny.mtp_head import chain_mask
from tools.tiny.optimizer import orthogonalized
from tools.tiny.train import Recipe, learning_rate, train, windows

LENGTH = 70
"""More than one chunk of the delta rule."""


def _model(config: TinyConfig = TOY, seed: int = 0) -> TinyModel:
    torch.manual_seed(seed)
    model = TinyModel(config)
    model.initialize(seed)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            # Norm weights away from their initial zeros and ones, so that forgetting the "1 +" shows.
            parameter.data += torch.randn_like(parameter) * 0.1
    return model.eval()


def _reference(model: TinyModel, config: TinyConfig) -> torch.nn.Module:
    """transformers' text model with the same weights."""
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    reference = Qwen3_5MoeForCausalLM(
        Qwen3_5MoeTextConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            linear_conv_kernel_dim=config.linear_conv_kernel_dim,
            linear_key_head_dim=config.linear_key_head_dim,
            linear_value_head_dim=config.linear_value_head_dim,
            linear_num_key_heads=config.linear_num_key_heads,
            linear_num_value_heads=config.linear_num_value_heads,
            moe_intermediate_size=config.moe_intermediate_size,
            shared_expert_intermediate_size=config.shared_expert_intermediate_size,
            num_experts=config.num_experts,
            num_experts_per_tok=config.num_experts_per_tok,
            layer_types=list(config.layer_types),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": config.rope_theta,
                "partial_rotary_factor": config.partial_rotary_factor,
                "mrope_section": list(config.mrope_section),
                "mrope_interleaved": True,
            },
        )
    ).eval()
    weights = {
        name.replace("model.language_model.", "model."): value
        for name, value in model.state_dict().items()
        if not name.startswith("mtp.")
    }
    reference.load_state_dict(weights, strict=True)
    return reference


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, TOY.vocab_size, (2, LENGTH + 1), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_trunk_has_the_logits_of_transformers(tokens: Tensor) -> None:
    model = _model()
    ours = model.lm_head(model(tokens, depth=0).hidden)
    theirs = _reference(model, TOY)(tokens[:, :-1]).logits
    assert ours.std() > 0.1
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@torch.no_grad()
def test_head_is_a_layer_of_transformers_behind_fc(tokens: Tensor) -> None:
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import (
        Qwen3_5MoeDecoderLayer,
        Qwen3_5MoeRMSNorm,
        Qwen3_5MoeTextRotaryEmbedding,
    )

    model = _model()
    reference = _reference(model, TOY)
    config = reference.config
    config._attn_implementation = "sdpa"
    layer = Qwen3_5MoeDecoderLayer(config, layer_idx=TOY.num_hidden_layers - 1).eval()
    layer.load_state_dict(model.mtp.layers[0].state_dict())
    norms = {}
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        norms[name] = Qwen3_5MoeRMSNorm(TOY.hidden_size, eps=TOY.rms_norm_eps)
        norms[name].load_state_dict(getattr(model.mtp, name).state_dict())
    hidden = reference.model(tokens[:, :-1]).last_hidden_state
    embedded = reference.model.embed_tokens(tokens[:, 1:])
    parts = [norms["pre_fc_norm_embedding"](embedded), norms["pre_fc_norm_hidden"](hidden)]
    x = torch.nn.functional.linear(torch.cat(parts, -1), model.mtp.fc.weight)
    positions = torch.arange(LENGTH)[None].expand(2, -1)
    rotary = Qwen3_5MoeTextRotaryEmbedding(config)(x, positions)
    causal = torch.zeros(LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1) > 0, float("-inf"))
    x = layer(x, position_embeddings=rotary, attention_mask=causal[None, None], position_ids=positions)
    expected = norms["norm"](x)
    torch.testing.assert_close(model(tokens, depth=1).drafts[0], expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_chained_drafts_equal_drafting_one_at_a_time(tokens: Tensor) -> None:
    """The parallel form (every slot at once) against the loop that a decoder runs from one committed slot."""
    model = _model()
    depth, start = 4, 41
    parallel = model(tokens, depth).drafts
    hidden = model(tokens, 0).hidden[:, : start + 1]
    embedded = model.trunk.embed_tokens(tokens[:, 1:])
    weights = model.mtp.layers[0].mlp.experts.weights
    for draft in range(depth):
        slot = start + draft
        output = model.mtp(embedded[:, : slot + 1], hidden, 1, weights)[0][0][:, -1:]
        torch.testing.assert_close(parallel[draft][:, slot], output[:, 0], atol=1e-5, rtol=0)
        hidden = torch.cat([hidden, output], dim=1)


def test_a_chain_sees_its_own_drafts_and_the_past_before_it() -> None:
    mask = chain_mask(4, 3, torch.device("cpu")).int().tolist()
    assert mask[3] == [*(1, 1, 0, 0), *(0, 0, 1, 0), *(0, 0, 0, 1)]
    assert mask[2] == [*(1, 0, 0, 0), *(0, 1, 0, 0), *(0, 0, 1, 0)]


def test_triton_steps_compute_what_plain_torch_computes() -> None:
    """Output and all five gradients; in a process of its own, since Triton decides at import to interpret."""
    pytest.importorskip("triton")
    code = (
        "import torch; from tools.tiny.gated_delta_triton import relative_errors; "
        "print(max(relative_errors(torch.device('cpu'), torch.float32, length=150)))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert float(run.stdout) < 1e-5


def test_training_sees_the_values_that_the_file_holds() -> None:
    weight = torch.randn(3, 32, 48, generator=torch.Generator().manual_seed(3)) * 0.1
    weight[1, :4, :16] = 0.0
    stored = torch.stack([decode_nvfp4(encode_nvfp4(matrix)) for matrix in weight])
    assert 0.001 < (stored - weight).abs().max() < 0.1
    torch.testing.assert_close(nvfp4_values(weight), stored, atol=1e-6, rtol=0)


def test_fake_quantisation_passes_the_gradient_unchanged() -> None:
    weight = torch.randn(2, 16, 16, requires_grad=True)
    nvfp4_values(weight).square().sum().backward()
    torch.testing.assert_close(weight.grad, 2 * nvfp4_values(weight.detach()))


def test_muon_makes_updates_near_orthogonal() -> None:
    matrices = torch.randn(3, 24, 40, generator=torch.Generator().manual_seed(4))
    values = torch.linalg.svdvals(orthogonalized(matrices).float())
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_training_lowers_the_loss_and_raises_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    # A text that repeats a pattern of 16 tokens: what comes next is certain once the pattern was seen.
    tokens = torch.arange(16).repeat(200) % 13
    model = _model()
    recipe = Recipe(
        seconds=3600, max_steps=30, rows=4, length=32, warmup_steps=5, report_every=29, learning_rate=0.01
    )
    first, last = train(model, tokens, recipe, compiled=False)
    assert last["loss"] < 0.5 * first["loss"]
    assert last["agreement_1"] > first["agreement_1"] + 0.2
    assert '"step": 29' in capsys.readouterr().out


def test_windows_cover_the_text_in_another_order_each_pass() -> None:
    batches = windows(torch.arange(1000), rows=2, length=50, seed=0)
    first = torch.cat([next(batches) for _ in range(9)])
    assert (first[:, 1:] == first[:, :-1] + 1).all()
    assert len(set(first[:, 0].tolist())) == 18
    assert set(torch.cat([next(batches) for _ in range(9)])[:, 0].tolist()) != set(first[:, 0].tolist())


def test_learning_rate_warms_up_stays_and_falls_to_zero() -> None:
    recipe = Recipe(seconds=60, learning_rate=0.1, warmup_steps=10, decay_from=0.5)
    assert learning_rate(recipe, 0, 0.0) == pytest.approx(0.01)
    assert learning_rate(recipe, 100, 0.5) == pytest.approx(0.1)
    assert learning_rate(recipe, 100, 0.75) == pytest.approx(0.05)
    assert learning_rate(recipe, 100, 1.0) == 0.0


def test_export_has_the_tensors_that_the_architecture_requires(tmp_path: Path) -> None:
    model = _model()
    export(model, torch.randint(0, TOY.vocab_size, (2, 33)), tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    tensors: dict[str, Tensor] = {}
    for file in set(index["weight_map"].values()):
        tensors.update(load_file(tmp_path / file))
    assert set(tensors) == set(index["weight_map"])
    assert len(set(index["weight_map"].values())) == 2
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in tensors.values())
    experts = TOY.num_experts
    head = {name: tensor for name, tensor in tensors.items() if name.startswith("mtp.")}
    assert len(head) == 17 + 3 * experts
    assert {tensor.dtype for tensor in head.values()} == {torch.bfloat16}
    linear, full = 3 * (2 + 9 + 5), 1 * (2 + 6 + 5)
    assert len(tensors) - len(head) == 3 + linear + full + 4 * 3 * experts * TOY.num_hidden_layers
    base = "model.language_model.layers.2.mlp.experts.1."
    inner, width = TOY.moe_intermediate_size, TOY.hidden_size
    assert tensors[base + "gate_proj.weight"].dtype == torch.uint8
    assert tensors[base + "gate_proj.weight"].shape == (inner, width // 2)
    assert tensors[base + "gate_proj.weight_scale"].dtype == torch.float8_e4m3fn
    assert tensors[base + "down_proj.weight_scale"].shape == (width, inner // 16)
    for leaf in ("weight_scale_2", "input_scale"):
        assert tensors[base + "down_proj." + leaf].shape == ()
        assert tensors[base + "down_proj." + leaf].dtype == torch.float32
        assert tensors[base + "gate_proj." + leaf] == tensors[base + "up_proj." + leaf]


def test_the_two_quantization_configs_agree(tmp_path: Path) -> None:
    export(_model(), torch.randint(0, TOY.vocab_size, (2, 33)), tmp_path)
    inside = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    beside = json.loads((tmp_path / "hf_quant_config.json").read_text())["quantization"]
    assert inside["ignore"] == beside["exclude_modules"]
    assert inside["quant_algo"] == beside["quant_algo"] == "NVFP4"
    assert "mtp*" in inside["ignore"]


def test_a_loaded_checkpoint_is_the_model_with_nvfp4_experts(tmp_path: Path, tokens: Tensor) -> None:
    model = _model()
    export(model, tokens, tmp_path)
    loaded = load_checkpoint(tmp_path)
    with torch.no_grad():
        for layer in model.trunk.layers:
            for parameter in layer.mlp.experts.parameters():
                parameter.copy_(nvfp4_values(parameter))
        for name, parameter in model.named_parameters():
            kept = (
                "A_log" in name or "linear_attn.norm" in name or (".experts." in name and "mtp" not in name)
            )
            if not kept:
                parameter.copy_(parameter.bfloat16())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, atol=1e-6, rtol=0, msg=name)


def test_accept_lengths_walk_as_a_decoder_does() -> None:
    text = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8]])
    # Drafts of the chain from slot s guess tokens s + 2 and s + 3: right, except the second one from slot 2.
    drafts = torch.stack([text.roll(-2, 1), text.roll(-3, 1)])
    drafts[1, 0, 2] = 63
    passes, emitted = accept_walk(text, drafts, start=0, stop=6)
    # From slot 0: both accepted, to slot 3; from 3: both accepted, to slot 6.
    assert (passes, emitted) == (2, 6)
    passes, emitted = accept_walk(text, drafts, start=2, stop=6)
    # From slot 2: one accepted, to slot 4; from 4: both, past the end.
    assert (passes, emitted) == (2, 5)
