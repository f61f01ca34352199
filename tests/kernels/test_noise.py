"""Addressed noise: the published generator, the stated address, and a Gumbel distribution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.noise.reference import gumbel_noise, philox, vocabulary_noise
from draftproof.kernels.noise.select import HOST, REFERENCE, noise_for

# Known answers of Random123's kat_vectors for philox4x32, 10 rounds: counter, key, output.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[Tensor, ...]:
    return tuple(torch.tensor([int(word, 16)]) for word in text.split())


def philox_in_integers(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 from the paper, in unbounded integers."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product2 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (
            (product2 >> 32) ^ x1 ^ k0,
            product2 % 2**32,
            (product0 >> 32) ^ x3 ^ k1,
            product0 % 2**32,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return x0, x1, x2, x3


def gumbel_in_python(seed: int, position: int, token_id: int) -> float:
    key = (seed % 2**32, (seed >> 32) % 2**32)
    counter = (token_id // 4, position % 2**32, position >> 32, 1)
    word = philox_in_integers(counter, key)[token_id % 4]
    return -math.log(-math.log(((word >> 9) + 0.5) / 2**23))


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    c0, c1, c2, c3 = words(counter)
    k0, k1 = words(key)
    assert philox((c0, c1, c2, c3), (k0, k1)) == words(expected)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63), 0x1234_5678_9ABC_DEF0])
@pytest.mark.parametrize("position", [0, 7, 2**32 + 5])
def test_address_is_seed_position_and_token(seed: int, position: int) -> None:
    token_ids = [0, 1, 2, 3, 4, 5, 1001, 248_319]
    noise = gumbel_noise(torch.tensor([seed]), torch.tensor([position]), torch.tensor(token_ids))
    expected = torch.tensor([[gumbel_in_python(seed, position, token_id) for token_id in token_ids]])
    torch.testing.assert_close(noise, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vocabulary_size", [1, 3, 4, 5, 320, 1003])
def test_a_token_has_the_same_noise_alone_and_among_all(vocabulary_size: int) -> None:
    seeds, positions = torch.tensor([3, 3, -9]), torch.tensor([0, 1, 1])
    everything = vocabulary_noise(seeds, positions, vocabulary_size)
    assert everything.shape == (3, vocabulary_size)
    assert everything.dtype == torch.float32
    assert torch.equal(everything, gumbel_noise(seeds, positions, torch.arange(vocabulary_size)))
    own = torch.randint(vocabulary_size, (3, 7), generator=torch.Generator().manual_seed(0))
    assert torch.equal(gumbel_noise(seeds, positions, own), everything.gather(1, own))
    for row in range(3):
        alone = vocabulary_noise(seeds[row : row + 1], positions[row : row + 1], vocabulary_size)
        assert torch.equal(alone[0], everything[row])


def test_noise_is_finite_at_both_ends_of_the_uniform() -> None:
    seeds = torch.arange(64)
    noise = vocabulary_noise(seeds, torch.zeros_like(seeds), 20_000)
    assert torch.isfinite(noise).all()
    smallest, largest = -math.log(-math.log(2.0**-24)), -math.log(-math.log1p(-(2.0**-24)))
    assert smallest <= noise.min().item()
    assert noise.max().item() <= largest + 1e-5


def test_noise_is_gumbel() -> None:
    """Kolmogorov-Smirnov distance below the 0.1 % critical value, 1.95 / sqrt(n)."""
    noise = vocabulary_noise(torch.arange(20), torch.arange(20), 10_000).flatten().double().sort().values
    cumulative = torch.exp(-torch.exp(-noise))
    count = len(noise)
    ranks = torch.arange(count + 1, dtype=torch.float64) / count
    distance = max((ranks[1:] - cumulative).max().item(), (cumulative - ranks[:-1]).max().item())
    assert distance < 1.95 / math.sqrt(count)


def chi_square(observed: Tensor, expected: Tensor) -> float:
    return ((observed - expected) ** 2 / expected).sum().item()


def test_largest_of_logits_plus_noise_follows_the_softmax() -> None:
    """Gumbel-max over positions of one seed: chi-square with 7 degrees of freedom, p above 0.001."""
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, -2.0])
    draws = 20_000
    noise = vocabulary_noise(torch.full((draws,), 11), torch.arange(draws), 8)
    observed = (logits + noise).argmax(1).bincount(minlength=8).double()
    assert chi_square(observed, logits.double().softmax(0) * draws) < 24.32


@pytest.mark.parametrize("shift", ["position", "seed", "token"])
def test_neighbouring_addresses_are_independent(shift: str) -> None:
    """Quartile cells of (noise here, noise next door): chi-square with 15 degrees of freedom, p above
    0.001."""
    count = 16_000
    base = torch.arange(count)
    zeros, own_token = torch.zeros_like(base), torch.full((count, 1), 6)
    if shift == "position":
        here = gumbel_noise(zeros, base * 2, own_token)
        there = gumbel_noise(zeros, base * 2 + 1, own_token)
    elif shift == "seed":
        here = gumbel_noise(base * 2, zeros, own_token)
        there = gumbel_noise(base * 2 + 1, zeros, own_token)
    else:
        here, there = gumbel_noise(zeros, base, own_token), gumbel_noise(zeros, base, own_token + 1)
    borders = torch.tensor([-math.log(-math.log(quarter / 4)) for quarter in (1, 2, 3)])
    cells = torch.bucketize(here, borders) * 4 + torch.bucketize(there, borders)
    observed = cells.flatten().bincount(minlength=16).double()
    assert chi_square(observed, torch.full((16,), count / 16, dtype=torch.float64)) < 37.70


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1)), min_size=1, max_size=3),
    st.integers(1, 70),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_the_host_makes_the_numbers_of_the_reference(
    addresses: list[tuple[int, int]], vocabulary_size: int, data: st.DataObject
) -> None:
    seeds, positions = (torch.tensor(column) for column in zip(*addresses, strict=True))
    everything = REFERENCE.of_vocabulary(seeds, positions, vocabulary_size)
    assert torch.equal(HOST.of_vocabulary(seeds, positions, vocabulary_size), everything)
    row = st.lists(st.integers(0, vocabulary_size - 1), min_size=5, max_size=5)
    own = torch.tensor(data.draw(st.lists(row, min_size=len(addresses), max_size=len(addresses))))
    assert torch.equal(HOST.of_tokens(seeds, positions, own), everything.gather(1, own))
    assert torch.equal(HOST.of_tokens(seeds, positions, own[0]), everything[:, own[0]])


def test_tensors_on_the_cpu_get_the_host_implementation() -> None:
    assert noise_for(torch.device("cpu")).name == "host"
    assert noise_for(torch.device("meta")).name == "reference"
