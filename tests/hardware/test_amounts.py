"""Amounts with units."""

import pytest

from draftproof.errors import UsageError
from draftproof.hardware.amounts import parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("96GB", 96e9),
        ("96 gb", 96e9),
        ("97887MiB", 97887 * 2**20),
        ("1.5 TB", 1.5e12),
        ("80GiB", 80 * 2**30),
        ("512kB", 512e3),
    ],
)
def test_bytes(text, value):
    assert parse_bytes(text, "--memory") == value


@pytest.mark.parametrize(
    ("text", "value"), [("1.8TB/s", 1.8e12), ("1792 GB/s", 1.792e12), ("4.8TB", 4.8e12), ("900GBps", 9e11)]
)
def test_rates(text, value):
    assert parse_rate(text, "--bandwidth") == value


@pytest.mark.parametrize(
    "text", ["96", "GB", "", "-1GB", "0GB", "1e400GB", "96 parsecs", "9" * 30 + "GB", "1.2.3GB", "nanGB"]
)
def test_what_is_no_amount_is_a_usage_error_that_names_the_option(text):
    with pytest.raises(UsageError, match="--memory"):
        parse_bytes(text, "--memory")
    with pytest.raises(UsageError, match="--bandwidth"):
        parse_rate(text, "--bandwidth")
