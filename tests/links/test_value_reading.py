"""How much of the values is read: the head first, a sample of the rest, little of what is far away."""

from dataclasses import replace

import pytest

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.errors import CheckpointError, EnvironmentProblem
from draftproof.links.examined import examine, stored_modules
from draftproof.links.progress import NoProgress
from draftproof.links.value_reading import (
    FULL,
    NOTHING,
    REMOTE_LEAST,
    REMOTE_SAMPLE,
    SAMPLE,
    read_values,
)
from tests.support.checkpoints import NVFP4_ROUTED, CheckpointOptions, Sizes, write_checkpoint


class Far:
    """A folder read as if it were far away."""

    first_read, refused, label = 8, {}, "far"

    def __init__(self, source, error=None):
        self.source, self.error, self.fetched = source, error, 0

    def list_files(self):
        return self.source.list_files()

    def read(self, name, limit):
        return self.source.read(name, limit)

    def read_range(self, name, start, length):
        if self.error is not None:
            raise self.error
        self.fetched += length
        return self.source.read_range(name, start, length)


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    options = CheckpointOptions(
        moe=True, vision=False, precision=NVFP4_ROUTED, sizes=Sizes(layers=8, experts=16, hidden=96)
    )
    return open_checkpoint(str(write_checkpoint(tmp_path_factory.mktemp("reading") / "c", options).folder))


def far(near, error=None):
    return replace(near, source=Far(near.source, error))


def read(checkpoint, reading, progress=None):
    modules = stored_modules(examine(checkpoint, spec_from_config(checkpoint.config)))
    return read_values(checkpoint, modules, reading, progress or NoProgress())


def test_the_whole_head_and_a_sample_of_the_rest(near):
    values = read(near, SAMPLE)
    assert len(values.head) == values.head_total == 65
    assert 0 < len(values.target) < values.target_total
    assert not values.complete


def test_the_sample_is_the_same_every_time(near):
    names = [[module.stored.module for module in read(near, SAMPLE).all] for _ in range(2)]
    assert names[0] == names[1]


def test_every_kind_of_module_is_in_the_sample(near):
    kinds = {module.stored.module.rpartition(".")[2] for module in read(near, SAMPLE).target}
    assert {"up_proj", "q_proj", "embed_tokens", "lm_head", "gate", "input_layernorm", "A_log"} <= kinds


def test_full_reads_every_byte_and_nothing_none(near):
    assert read(near, FULL).complete
    assert read(near, NOTHING).all == ()


def test_little_is_fetched_from_far_away(near):
    checkpoint = far(near)
    values = read(checkpoint, REMOTE_SAMPLE)
    assert values.head
    assert checkpoint.source.fetched == values.bytes_read <= REMOTE_LEAST


def test_a_module_that_cannot_be_read_is_named_and_the_others_are_read(near):
    values = read(far(near, CheckpointError("the file ends early")), REMOTE_SAMPLE)
    assert values.all == ()
    assert "the file ends early" in values.unreadable[0]


def test_a_lost_connection_ends_the_reading(near):
    with pytest.raises(EnvironmentProblem):
        read(far(near, EnvironmentProblem("gone")), REMOTE_SAMPLE)


def test_progress_ends_where_it_should(near):
    seen = []

    class Watcher:
        def advance(self, step, done, total):
            seen.append((done, total))

    values = read(near, SAMPLE, Watcher())
    assert seen[-1] == (len(values.all), len(values.all))
