"""Models that the engine's tests share: float32, so that every comparison of texts is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftproof.models.loading import LoadedModel
from tests.support.checkpoints import BF16, FP32, CheckpointOptions, Sizes, WrittenCheckpoint
from tests.support.engines import load

TWO_LAYERS = Sizes(layers=2, full_attention_interval=2)


@pytest.fixture(scope="session")
def model(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> LoadedModel:
    """Mixture of experts, three recurrent layers and one of attention, MTP head."""
    return load(checkpoint(CheckpointOptions(moe=True, precision=FP32)).folder)


@pytest.fixture(scope="session")
def small_model(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> LoadedModel:
    """Dense, one recurrent layer and one of attention, MTP head: for tests that take many steps."""
    return load(checkpoint(CheckpointOptions(precision=FP32, sizes=TWO_LAYERS)).folder)


@pytest.fixture(scope="session")
def bfloat16_folder(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> WrittenCheckpoint:
    """A dense model in BF16 on disk: three recurrent layers and one of attention, MTP head."""
    return checkpoint(CheckpointOptions(precision=BF16))
