"""Rotary tables equal transformers', with and without scaling; rotation is the rotation of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

from draftproof.architecture.spec import RotarySpec
from draftproof.errors import UnsupportedRequest
from draftproof.layers.rotary import RotaryEmbedding, rotate_
from tests.support.checkpoints import FP32, CheckpointOptions, WrittenCheckpoint
from tests.support.engines import CPU, load
from tests.support.faults import copy_of, set_config

HEAD_DIM = 32
PARTIAL = 0.5


def rotate(heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    turned = heads.clone()
    rotate_(turned, angles)
    return turned


CASES = {
    "default": (
        RotarySpec(1e6, 16),
        {"rope_type": "default", "rope_theta": 1e6},
    ),
    "linear": (
        RotarySpec(1e6, 16, "linear", 3.0),
        {"rope_type": "linear", "rope_theta": 1e6, "factor": 3.0},
    ),
    "yarn": (
        RotarySpec(1e6, 16, "yarn", 4.0, 1024),
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 1024},
    ),
    "yarn, own boundaries and temperature": (
        RotarySpec(1e4, 16, "yarn", 8.0, 256, 16.0, 2.0, 1.7),
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 256,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "attention_factor": 1.7,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_tables_equal_transformers(case: str) -> None:
    spec, parameters = CASES[case]
    config = Qwen3_5TextConfig(
        head_dim=HEAD_DIM,
        max_position_embeddings=5120,
        rope_parameters={**parameters, "partial_rotary_factor": PARTIAL, "mrope_section": [3, 3, 2]},
    )
    positions = torch.tensor([[0, 1, 17, 255, 256, 1023, 1024, 5000]])
    theirs = Qwen3_5TextRotaryEmbedding(config)(torch.zeros(1), positions)
    cos, sin = RotaryEmbedding(spec, 5120, CPU).at(positions)
    assert cos.shape == sin.shape == (1, 8, 1, 16)
    torch.testing.assert_close(cos.squeeze(2), theirs[0], atol=2e-5, rtol=0)
    # The sign that the leading half takes is in the table.
    torch.testing.assert_close(sin[..., :8].squeeze(2), -theirs[1][..., :8], atol=2e-5, rtol=0)
    torch.testing.assert_close(sin[..., 8:].squeeze(2), theirs[1][..., 8:], atol=2e-5, rtol=0)


def test_yarn_changes_the_tables() -> None:
    plain, scaled = (RotaryEmbedding(CASES[case][0], 64, CPU) for case in ("default", "yarn"))
    assert (plain.cos - scaled.cos).abs().max() > 0.05


def test_a_pair_turns_by_its_angle_and_the_rest_passes() -> None:
    """Dimension i turns with dimension i + width / 2, by position / theta^(2 i / width)."""
    spec = RotarySpec(100.0, 4)
    heads = torch.randn(1, 2, 3, 6, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[5, 9]])
    turned = rotate(heads, RotaryEmbedding(spec, 16, CPU).at(positions))
    assert torch.equal(turned[..., 4:], heads[..., 4:])
    for row, position in enumerate((5, 9)):
        for pair in range(2):
            angle = position / 100.0 ** (2 * pair / 4)
            first, second = heads[0, row, :, pair], heads[0, row, :, pair + 2]
            torch.testing.assert_close(
                turned[0, row, :, pair], first * math.cos(angle) - second * math.sin(angle)
            )
            torch.testing.assert_close(
                turned[0, row, :, pair + 2], second * math.cos(angle) + first * math.sin(angle)
            )


def test_scores_depend_on_distance_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(1, 1, 1, 16, generator=generator), torch.randn(1, 1, 1, 16, generator=generator)
    rotary = RotaryEmbedding(RotarySpec(1e4, 16), 200, CPU)

    def score(at: int, other: int) -> float:
        positions = torch.tensor([[at]]), torch.tensor([[other]])
        return float((rotate(query, rotary.at(positions[0])) * rotate(key, rotary.at(positions[1]))).sum())

    assert score(7, 2) == pytest.approx(score(150, 145), abs=1e-4)
    assert score(7, 2) != pytest.approx(score(7, 3), abs=1e-2)


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(UnsupportedRequest, match=r"rope scaling 'longrope' is not implemented.*yarn"):
        RotaryEmbedding(RotarySpec(1e4, 16, "longrope", 2.0), 16, CPU)


def test_trunk_and_head_of_a_scaled_checkpoint_share_one_table(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint], tmp_path: Path
) -> None:
    """A head with plain rotary positions beside a scaled trunk accepts nothing past the native length."""
    folder = copy_of(checkpoint(CheckpointOptions(precision=FP32)).folder, tmp_path / "yarn")
    for key, value in {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}.items():
        set_config(folder, f"text_config.rope_parameters.{key}", value)
    model = load(folder)
    assert model.head is not None
    assert model.head.target.rotary is model.target.rotary
    expected = RotaryEmbedding(RotarySpec(1e7, 8, "yarn", 4.0, 64), 600, CPU)
    assert torch.equal(model.target.rotary.cos[:600], expected.cos)
    assert torch.equal(model.target.rotary.sin[:600], expected.sin)
