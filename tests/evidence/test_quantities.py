"""Numbers as people read them."""

import pytest

from draftproof.evidence.quantities import count_text, listing, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (13_191_136_256, "13.19 GB"),
        (2_496_066_252_544, "2.50 TB"),
    ],
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_counts():
    assert count_text(1, "tensor") == "1 tensor"
    assert count_text(1553, "tensor") == "1,553 tensors"
    assert count_text(2, "entry", "entries") == "2 entries"


def test_long_lists_are_cut_and_say_so():
    assert listing(["a", "b"]) == "a, b"
    assert listing([str(number) for number in range(1005)], shown=2) == "0, 1 and 1,003 more"
