"""Scales of one number: read together where they lie together, every value as it is."""

import struct

import pytest

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, Precision
from draftproof.errors import CheckpointError, EnvironmentProblem
from draftproof.links.scalar_scales import LARGEST_GAP, read_scalar_scales


class Bytes:
    """A source of two files that counts how often it is read."""

    def __init__(self, **files):
        self.files = files
        self.reads = 0

    def read_range(self, name, start, length):
        self.reads += 1
        data = self.files[name][start : start + length]
        if len(data) < length:
            raise CheckpointError(f"{name} ends early")
        return data


def scale(name, file, start, dtype="F32", shape=()):
    return TensorEntry(name, dtype, shape, file, start, 4 if dtype == "F32" else 2)


def module(*entries):
    companions = {f"weight_scale_{number}": entry for number, entry in enumerate(entries)}
    return ModulePrecision("m", Precision.NVFP4_MODELOPT, None, companions, None)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def read(source, *entries, most=None, readers=1):
    return read_scalar_scales(source, [module(*entries)], most, readers)


def test_neighbours_are_read_at_once_whatever_their_order():
    source = Bytes(a=floats(1.5, 2.5, 3.5))
    entries = [scale(f"s{k}", "a", 4 * k, shape=(1,)) for k in (2, 0, 1)]
    found = read(source, *entries)
    assert source.reads == 1
    assert {entry.name: value for entry, value in found.values.items()} == {"s0": 1.5, "s1": 2.5, "s2": 3.5}


def test_a_span_may_hold_several_dtypes():
    source = Bytes(a=floats(0.5) + b"\x80\x3f" + floats(8.0))
    found = read(source, scale("a", "a", 0), scale("b", "a", 4, "BF16"), scale("c", "a", 6))
    assert [value for _, value in sorted((e.name, v) for e, v in found.values.items())] == [0.5, 1.0, 8.0]


def test_scales_far_apart_or_in_two_files_are_read_apart():
    source = Bytes(a=floats(1.0) + bytes(LARGEST_GAP + 4) + floats(2.0), b=floats(3.0))
    read(source, scale("x", "a", 0), scale("y", "a", LARGEST_GAP + 8), scale("z", "b", 0))
    assert source.reads == 3


def test_where_there_are_too_many_places_some_of_all_are_read():
    gap = LARGEST_GAP + 8
    source = Bytes(a=b"".join(floats(k) + bytes(gap) for k in range(10)))
    found = read(source, *(scale(f"s{k}", "a", k * (gap + 4)) for k in range(10)), most=2)
    assert found.total == 10
    assert sorted(found.values.values()) == [0.0, 5.0]


def test_larger_scales_are_left_to_the_weights():
    source = Bytes(a=bytes(64))
    assert read(source, TensorEntry("blocks", "F8_E4M3", (2, 4), "a", 0, 8)).total == 0


def test_a_short_file_is_left_to_its_own_claim():
    found = read(Bytes(a=b""), scale("s", "a", 0))
    assert (found.total, found.values) == (1, {})


def test_a_lost_connection_is_no_finding():
    class Gone:
        def read_range(self, name, start, length):
            raise EnvironmentProblem("gone")

    with pytest.raises(EnvironmentProblem):
        read(Gone(), scale("s", "a", 0))
