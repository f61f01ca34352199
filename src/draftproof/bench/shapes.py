"""The shapes of public releases: their configs, shipped as data, and what of a model they make."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import LayerSpec, ModelSpec, MoeSpec
from draftproof.checkpoint.config import ConfigFile, ConfigFiles
from draftproof.errors import UsageError

SHAPES = ("qwen3.5-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-397b-a17b", "qwen3.5-27b")
"""Names of `data/shapes/*.json`: config.json of the releases without quantisation; of the 122B and the 27B it
is put together from what others read of them."""


def load_shape(name: str) -> ModelSpec:
    """A release's text model with its head; the vision tower is left out.

    Raises:
        UsageError: no shape has this name.
    """
    if name not in SHAPES:
        raise UsageError(f"there is no shape {name[:60]!r}", f"Shapes are: {', '.join(SHAPES)}.")
    text = files("draftproof").joinpath("data", "shapes", f"{name}.json").read_text(encoding="utf-8")
    config = ConfigFile("config.json", json.loads(text))
    absent = ConfigFiles(
        config, ConfigFile("hf_quant_config.json", None), ConfigFile("generation_config.json", None)
    )
    return replace(spec_from_config(absent), vision=None)


def first_layers(spec: ModelSpec, count: int) -> ModelSpec:
    """The model cut to its first layers, embedding, output head and MTP head kept.

    Raises:
        UsageError: not so many layers, or none.
    """
    if not 1 <= count <= len(spec.layers):
        raise UsageError(f"--layers {count}: the shape has 1 to {len(spec.layers)} layers")
    return replace(spec, layers=spec.layers[:count])


def sample_of(spec: ModelSpec) -> ModelSpec:
    """One layer of each kind with few experts and tokens, all widths kept: enough to try kernels on."""
    assert spec.mtp is not None
    layers = [_few_experts(layer) for layer in (spec.layers[0], spec.mtp.layer)]
    return replace(spec, vocab_size=64, layers=tuple(layers), mtp=replace(spec.mtp, layer=layers[1]))


def _few_experts(layer: LayerSpec) -> LayerSpec:
    if not isinstance(layer.mlp, MoeSpec):
        return layer
    return replace(layer, mlp=replace(layer.mlp, num_experts=2, experts_per_token=1))
