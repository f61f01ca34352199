"""Models that the tests of device steps share: the same weights for the step loop and for device steps.

BF16 on disk and float32 activations: both then compute the same numbers up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from draftproof.models.loading import LoadedModel
from tests.support.checkpoints import BF16, CheckpointOptions, Sizes, WrittenCheckpoint
from tests.support.device_engines import load_packed
from tests.support.engines import load

TWO_LAYERS = Sizes(layers=2, full_attention_interval=2)


@dataclass(frozen=True)
class Pair:
    """One checkpoint, loaded for the step loop and for device steps."""

    plain: LoadedModel
    packed: LoadedModel


@pytest.fixture(scope="session")
def pair_of(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint],
) -> Callable[[CheckpointOptions], Pair]:
    """Loads a checkpoint both ways."""

    def get(options: CheckpointOptions) -> Pair:
        folder = checkpoint(options).folder
        return Pair(load(folder), load_packed(folder))

    return get


@pytest.fixture(scope="session")
def mixture(pair_of: Callable[[CheckpointOptions], Pair]) -> Pair:
    """Mixture of experts, three recurrent layers and one of attention, MTP head."""
    return pair_of(CheckpointOptions(moe=True, precision=BF16))


@pytest.fixture(scope="session")
def small(pair_of: Callable[[CheckpointOptions], Pair]) -> Pair:
    """Dense, one recurrent layer and one of attention, MTP head."""
    return pair_of(CheckpointOptions(precision=BF16, sizes=TWO_LAYERS))
