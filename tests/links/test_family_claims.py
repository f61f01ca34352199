"""Heads of other families: found by their names, judged by their siblings, never proven as a whole."""

import json
import struct

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.evidence import Verdict
from draftproof.links.config import check_config
from draftproof.links.weights import check_weights
from tests.support.raw_safetensors import RawTensor, write_safetensors

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN
BLOCK = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
DEEPSEEK = ("enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head", "embed_tokens")


def tensor(number, zero=False):
    values = [0.0 if zero else ((number + 1) * (k + 1) % 101 - 50) / 100 for k in range(32)]
    return RawTensor("BF16", (4, 8), b"".join(struct.pack("<f", value)[2:] for value in values))


def write(folder, config, names, files=None, zero=()):
    """A made-up checkpoint: names -> tensors, in model.safetensors or in the files that are given."""
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text("{}")
    tensors = {name: tensor(number, name in zero) for number, name in enumerate(names)}
    for file, part in (files or {"model.safetensors": names}).items():
        write_safetensors(folder / file, {name: tensors[name] for name in part})
    return folder


def layers(prefix, count):
    return [f"{prefix}{index}.{module}.weight" for index in range(count) for module in BLOCK]


def deepseek(*extra):
    """Two trunk layers and a head at layer 2."""
    head = [f"model.layers.2.{module}.weight" for module in (*DEEPSEEK, *BLOCK)]
    return ["model.embed_tokens.weight", "model.norm.weight", *layers("model.layers.", 2), *head, *extra]


DEEPSEEK_CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
}


def check(folder):
    return check_weights(open_checkpoint(str(folder)))


def claim(report, name):
    return next(item for item in report.items if item.check == name)


def test_a_complete_head_is_proven_and_the_link_stays_open(tmp_path):
    report = check(write(tmp_path, DEEPSEEK_CONFIG, deepseek()))
    head = claim(report, "head-complete")
    assert head.verdict is PROVEN
    assert "13 tensors in 1 layer" in head.observed
    assert report.verdict is UNKNOWN
    assert "DeepSeek" in report.summary


def test_a_missing_projection_is_named(tmp_path):
    names = [name for name in deepseek() if "eh_proj" not in name]
    head = claim(check(write(tmp_path, DEEPSEEK_CONFIG, names)), "head-complete")
    assert head.verdict is DISPROVED
    assert "model.layers.2.eh_proj" in head.observed


def test_a_module_that_the_trunk_has_and_the_head_lacks_is_named(tmp_path):
    names = [name for name in deepseek() if name != "model.layers.2.mlp.up_proj.weight"]
    head = claim(check(write(tmp_path, DEEPSEEK_CONFIG, names)), "head-complete")
    assert head.verdict is DISPROVED
    assert "model.layers.2.mlp.up_proj" in head.observed


def test_minimax_m2_declares_three_modules_and_ships_none(tmp_path, public_config):
    config = {**public_config("MiniMaxAI_MiniMax-M2"), "num_hidden_layers": 2}
    names = ["model.embed_tokens.weight", *layers("model.layers.", 2)]
    folder = write(tmp_path, config, names)
    assert check_config(open_checkpoint(str(folder))).verdict is PROVEN
    report = check(folder)
    head = claim(report, "head-complete")
    assert report.verdict is DISPROVED
    assert head.verdict is DISPROVED
    assert head.observed == "0 tensors, for a head of 3 layers that the config promises"
    assert head.where
    assert not any("{" in str(place.tensor) for place in head.where)
    assert "{" not in head.expected


def test_a_head_in_a_file_that_no_load_reads_is_named(tmp_path):
    config = {**DEEPSEEK_CONFIG, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"]}
    names = deepseek()
    in_head = [name for name in names if name.startswith("model.layers.2.")]
    rest = [name for name in names if name not in in_head]
    folder = write(tmp_path, config, names, {"model.safetensors": rest, "mtp.safetensors": in_head})
    head = claim(check(folder), "head-complete")
    assert head.verdict is DISPROVED
    assert "mtp.safetensors, which no load reads" in head.warnings[0].text


def test_values_are_checked_without_a_plan(tmp_path):
    name = "model.layers.2.eh_proj.weight"
    item = claim(check(write(tmp_path, DEEPSEEK_CONFIG, deepseek(), zero=(name,))), "values-alive")
    assert item.verdict is DISPROVED
    assert name in item.observed


def test_an_unknown_architecture_is_unknown(tmp_path):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    report = check(write(tmp_path, config, layers("model.layers.", 2)))
    assert report.verdict is UNKNOWN
    assert "'llama'" in report.summary


@pytest.mark.parametrize("count", [0, 1])
def test_an_honest_zero_makes_no_claim_about_a_head(tmp_path, count):
    config = {**DEEPSEEK_CONFIG, "num_nextn_predict_layers": count}
    report = check(write(tmp_path, config, ["model.embed_tokens.weight", *layers("model.layers.", 2)]))
    assert ("head-complete" in [item.check for item in report.items]) is bool(count)
