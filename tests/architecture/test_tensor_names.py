"""Heads below the trunk's prefix are recognised and called misplaced."""

from __future__ import annotations

import pytest

from draftproof.architecture.tensor_names import WrongPrefix, wrong_prefixes


@pytest.mark.parametrize(
    "prefix", ["model.", "language_model.", "model.language_model.", "language_model.model."]
)
def test_every_known_wrong_prefix_is_found(prefix: str) -> None:
    names = [f"{prefix}mtp.norm.weight", f"{prefix}mtp.fc.weight", f"{prefix}layers.0.mlp.gate.weight"]
    assert wrong_prefixes(names) == (
        WrongPrefix(prefix, (f"{prefix}mtp.fc.weight", f"{prefix}mtp.norm.weight")),
    )


@pytest.mark.parametrize(
    "name", ["mtp.fc.weight", "model.layers.0.weight", "x.mtp.fc.weight", "model.mtp", "model.mtp."]
)
def test_other_names_stay_as_they_are(name: str) -> None:
    assert wrong_prefixes([name]) == ()
